from numba import njit, objmode


@njit
def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


@njit
def odd(n):
    if n == 0:
        return False
    return even(n - 1)


@njit
def even(n):
    if n == 0:
        return True
    return odd(n - 1)


@njit
def typed(x, n):
    if n == 0:
        return 1.0
    return typed(x * 0.5, n - 1)


@njit
def through_python(n):
    with objmode(result="int64"):
        result = 0 if n == 0 else through_python(n - 1)
    return result + 1


print(factorial(5))
print(even(2), even(5))
print(typed(1, 3))
print(through_python(3))
