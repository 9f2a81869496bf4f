"""Numbers that are hard to print: doubles at the edges of their shortest forms, and decimals beyond all doubles."""

import math
import struct
from decimal import Decimal

SMALLEST, LARGEST = 5e-324, 1.7976931348623157e308
# RFC 8785, appendix B: as bits, because that is how they are given there.
RFC_8785 = ["0000000000000001", "7fefffffffffffff", "4340000000000000", "4430000000000000", "44b52d02c7e14af5",
            "44b52d02c7e14af6", "44b52d02c7e14af7", "444b1ae4d6e2ef4e", "444b1ae4d6e2ef4f", "444b1ae4d6e2ef50",
            "3eb0c6f7a0b5ed8c", "3eb0c6f7a0b5ed8d", "41b3de4355555553", "41b3de4355555554", "41b3de4355555555",
            "41b3de4355555556", "41b3de4355555557", "becbf647612f3696", "43143ff3c1cb0959"]
# Where printers and readers of other languages went wrong once.
FAMOUS = [2.2250738585072011e-308, 2.2250738585072014e-308, 4.4501477170144023e-308, 9.5367431640625e-7, 4.35, 0.3,
          0.1 + 0.2, 1 / 3, 9007199254740993.0, 9.007199254740993e22, 1.8446744073709552e19, 5.0e-324, 1e23,
          1.0000000000000001e23, 9.999999999999999e22, 2.109808898695963e16, 4.940656e-318, 1.18575755e-316,
          2.989102097996e-312, 9.0608011534336e15, 4.708356024711512e18, 9.409340012568248e18, 8.41e21, 2.0e22,
          299792458.0, 3.5844466002796428e298, 5.708990770823839e45, 1.2345678901234567e-5, 6.02214076e23, 1.79e308]


def neighbours(number, steps):
    """The double itself and so many on each side of it."""
    found = [number]
    for towards in (0.0, math.inf):
        at = number
        for _ in range(steps):
            at = math.nextafter(at, towards)
            found.append(at)
    return [double for double in found if 0 < double <= LARGEST]


def hard_doubles(random):
    """Positive doubles by what makes them hard; a double stands in the first group that has it."""
    groups = {
        "RFC 8785 appendix B": [abs(struct.unpack(">d", bytes.fromhex(bits))[0]) for bits in RFC_8785],
        "famous": FAMOUS,
        # The layout changes at 1e21 and 1e-6; the digits must not.
        "edges of the layout": [double for power in range(-9, 25) for lead in (1, 1.5, 1.234, 9, 9.99)
                                for double in neighbours(float(f"{lead}e{power}"), 3)],
        "2^53 ± k": [2.0 ** 53 + k for k in range(-100, 201)],
        "integers above 2^53": [float((1 << bits) + k) for bits in range(54, 72) for k in (-3, -1, 1, 3)],
        # The gap below a power of two is half of that above it, the case of every shortest-form algorithm.
        "powers of two": [double for power in range(-1074, 1024) for double in neighbours(2.0 ** power, 1)],
        "powers of ten": [double for power in range(-323, 309) for double in neighbours(float(f"1e{power}"), 2)],
        "subnormals": [k * SMALLEST for k in range(1, 200)]
        + [random.getrandbits(random.randint(8, 52)) * SMALLEST + SMALLEST for _ in range(500)],
        "largest": neighbours(LARGEST, 50),
        "needs 17 digits": _seventeen(random, 1000),
    }
    seen = set()
    return {name: [double for double in group if not (double in seen or seen.add(double))]
            for name, group in groups.items()}


def _seventeen(random, count):
    """Doubles of any size that no 16 digits tell from their neighbours."""
    found = []
    while len(found) < count:
        double = struct.unpack(">d", random.randbytes(8))[0]
        if math.isfinite(double) and float(f"{double:.15e}") != double:
            found.append(abs(double))
    return found


def spellings(random, value):
    """Ways to write one decimal value in JSON. `value` is a Decimal; its digits stay, also zeros at their end."""
    sign, digits, exponent = value.as_tuple()
    minus, digits = "-" * sign, "".join(map(str, digits))
    point = len(digits) + exponent
    zeros, more = "0" * random.randint(1, 3), "0" * random.randint(0, 2)
    written = {f"{minus}{digits}e{exponent}", f"{minus}{digits}E{exponent:+04}",
               f"{minus}{digits[0]}.{digits[1:]}0e{point - 1}",
               f"{minus}0.{zeros}{digits}{more}e{point + len(zeros)}"}
    # In full, as long as that is not much longer than the digits are.
    if len(digits) <= point <= 30 + len(digits):
        written |= {minus + digits + "0" * exponent, f"{minus}{digits}{'0' * exponent}.{zeros}"}
    elif -30 < point <= 0:
        written.add(f"{minus}0.{'0' * -point}{digits}")
    elif 0 < point < len(digits):
        written |= {f"{minus}{digits[:point]}.{digits[point:]}", f"{minus}{digits[:point]}.{digits[point:]}{zeros}"}
    return sorted(written)


def shortest(double):
    """The decimal that a double is written as: the shortest that reads back as it."""
    return Decimal(repr(double))


def ecmascript(value):
    """Any Decimal laid out by ECMAScript's rules for numbers (Number::toString), with all of its digits."""
    sign, digits, exponent = value.as_tuple()
    digits = "".join(map(str, digits)).lstrip("0")
    whole = digits.rstrip("0")
    if not whole:
        return "0"
    point = len(digits) + exponent
    if len(whole) <= point <= 21:
        text = whole.ljust(point, "0")
    elif 0 < point <= 21:
        text = f"{whole[:point]}.{whole[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{whole}"
    else:
        text = f"{whole[0]}{'.' * (len(whole) > 1)}{whole[1:]}e{point - 1:+}"
    return "-" * sign + text


def beyond_doubles(random):
    """Decimals that a double would round: close together, long, huge and tiny. Some are doubles' neighbours.

    PostgreSQL's numeric holds them all, with room for three more zeros at the end.
    """
    values = [Decimal(2 ** 53 + k) for k in range(-20, 40)]
    values += [Decimal((1 << bits) + k) for bits in (63, 64, 65, 127, 128, 256, 1000) for k in (-1, 0, 1)]
    values += map(Decimal, ["0.1", "0.10", "0.1000000000000000055", "0.10000000000000000550", "0.1000000000000000056",
                            "100000000000000000000000.1", "1e23", "100000000000000000000000", "99999999999999991611392",
                            "1e400", "1e401", "10e399", "1e-400", "-1e400", "5e-324", "4.9e-324", "2e-324",
                            "1.7976931348623157e308", "1.7976931348623158e308", "1.7976931348623159e308",
                            "1e131071", "9e131071", "1e-16380", "2e-16380", "0", "-0", "0.0", "0e400", "-0e-400"])
    # What a double holds exactly, to its last digit (up to 767 of them), is another number than its shortest form.
    doubles = [double for group in hard_doubles(random).values() for double in group]
    for double in random.sample(doubles, 400):
        values += [Decimal(double), shortest(double)]
    for _ in range(500):
        digits = random.randint(10 ** 17, 10 ** random.randint(18, 60))
        exponent = random.choice([-400, -60, -30, -9, -2, 0, 3, 400])
        values += [Decimal((k < 0, tuple(map(int, str(abs(k)))), exponent)) for k in (digits, digits + 1, -digits)]
    long = [*random.choices(range(10), k=130_000)]
    long[0] = long[-1] = 7
    for digits in (long, [*long[:-1], 8], [8, *long[1:]]):
        values += [Decimal((0, digits, exponent)) for exponent in (0, -1, -16_380, 1)]
    return values
