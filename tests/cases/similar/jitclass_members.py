from numba import float64, njit
from numba.experimental import jitclass


class Base:
    def total(self):
        return self.x + self.y


@jitclass([("x", float64), ("_y", float64)])
class Point(Base):
    def __init__(self, x, y=2.0):
        self.x = x
        self._y = y

    @property
    def y(self):
        return self._y

    @y.setter
    def y(self, value):
        self._y = value

    @staticmethod
    def twice(value):
        return value * 2

    def add(self, value, factor=3):
        return self.x + value * factor

    def many(self, *rest):
        return len(rest)

    def __len__(self):
        return 5

    def __getitem__(self, i):
        return self.x * i

    def chain(self, value):
        return self.add(value)


@njit
def norm(point):
    return (point.x**2 + point.y**2) ** 0.5


first = Point(1.0)
second = Point(1.0, 3.0)
third = Point(x=1.0, y=2.5)
print(first.y, second.y)
first.y = 5.0
first.x = 3.0
first.x = 4.0
print(first.x, second.x, first.twice(2), Point.twice(2))
print(first.add(1.0), first.add(1.0, 2), first.many(), first.many(1), first.many(2))
print(first.many(1, 2), len(first), first[3], first.chain(2.0), first.total())
print(norm(first), norm(third))
