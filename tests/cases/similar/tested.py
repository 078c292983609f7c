"""A module with tests of both kinds.

>>> square(3)
9
>>> square(4)
16
"""

import unittest

from numba import njit


@njit
def square(x):
    return x * x


class TestSquare(unittest.TestCase):
    def test_ints(self):
        self.assertEqual(square(2), 4)
        self.assertEqual(square(3), 9)

    def test_floats(self):
        self.assertEqual(square(0.5), 0.25)
