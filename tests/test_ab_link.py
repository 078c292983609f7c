"""How the processes of ``ab`` talk."""

from __future__ import annotations

import socket
import threading

import pytest

from numbaprof.ab_link import Link, LinkClosed, LinkTimeout, Listener


@pytest.fixture(params=["unix", "tcp"])
def listener(request, monkeypatch):
    """Return a listener of each kind."""
    if request.param == "tcp":
        monkeypatch.delattr(socket, "AF_UNIX")
    listener = Listener()
    assert listener.address.startswith(request.param)
    yield listener
    listener.close()


def connected(listener, **changes):
    """Return both ends."""
    made = []
    told = {"token": listener.token, "side": "base"} | changes
    thread = threading.Thread(
        target=lambda: made.append(Link.connect(listener.address, **told))
    )
    thread.start()
    accepted = listener.accept(5.0)
    thread.join()
    return made[0], accepted


def send_often(link):
    """Send until the other end's absence is noticed."""
    for _ in range(100):
        link.send(go=1)


def test_messages_arrive_whole_and_in_order(listener):
    """Whatever their length, one line is one message."""
    worker, (side, link) = connected(listener)
    assert side == "base"
    thread = threading.Thread(target=worker.send, kwargs={"text": "x" * 300_000})
    thread.start()
    assert len(link.receive(5.0)["text"]) == 300_000
    thread.join()
    for number in range(3):
        link.send(go=number)
    assert [worker.receive(5.0)["go"] for _ in range(3)] == [0, 1, 2]
    worker.close()
    link.close()


def test_stranger_is_sent_away(listener):
    """Who does not know the token is not listened to."""
    worker, accepted = connected(listener, token="guess")
    assert accepted is None
    with pytest.raises(LinkClosed):
        worker.receive(5.0)
    worker.close()


def test_nobody_comes(listener):
    """Waiting for a worker ends."""
    assert listener.accept(0.01) is None


def test_silence_and_the_end_are_told_apart(listener):
    """A worker that does not answer, and one that is gone."""
    worker, (_, link) = connected(listener)
    with pytest.raises(LinkTimeout, match="the base side did not answer"):
        link.receive(0.01)
    worker.close()
    with pytest.raises(LinkClosed, match="the base side ended early"):
        link.receive(5.0)
    with pytest.raises(LinkClosed):
        send_often(link)
    link.close()
