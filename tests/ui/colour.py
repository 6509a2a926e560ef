"""Colour maths: WCAG contrast, OKLCH, Machado 2009 colour-vision simulation, CIEDE2000."""

import math

Rgb = tuple[float, float, float]
"""Linear sRGB, each part 0 to 1."""
Lab = tuple[float, float, float]

SIMULATIONS: dict[str, tuple[Rgb, Rgb, Rgb]] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""How people see linear sRGB, at full severity (Machado, Oliveira and Fernandes 2009)."""


def linear(colour: str) -> Rgb:
    """Return a colour written as ``#rrggbb``."""
    red, green, blue = (_decoded(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return red, green, blue


def written(rgb: Rgb) -> str:
    """Return a colour as ``#rrggbb``; what no screen shows is cut off."""
    return "#" + "".join(f"{round(255 * _encoded(min(1, max(0, part)))):02x}" for part in rgb)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2)."""
    darker, lighter = sorted((_luminance(linear(one)), _luminance(linear(other))))
    return (lighter + 0.05) / (darker + 0.05)


def distance(one: str, other: str) -> float:
    """Return the least CIEDE2000 of two colours over all of :data:`SIMULATIONS`."""
    return min(
        ciede2000(lab(seen(linear(one), kind)), lab(seen(linear(other), kind)))
        for kind in SIMULATIONS
    )


def seen(rgb: Rgb, kind: str) -> Rgb:
    """Return the colour that a person of that colour vision sees."""
    red, green, blue = (
        min(1, max(0, sum(weight * part for weight, part in zip(row, rgb, strict=True))))
        for row in SIMULATIONS[kind]
    )
    return red, green, blue


def from_oklch(lightness: float, chroma: float, hue: float) -> Rgb:
    """Return the colour of an OKLCH triple, the hue in degrees; it may lie outside of sRGB."""
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )


def to_oklch(rgb: Rgb) -> tuple[float, float, float]:
    """Return the OKLCH triple of a colour, the hue in degrees."""
    red, green, blue = rgb
    long = math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue)
    medium = math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue)
    short = math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue)
    lightness = 0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short
    a = 1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short
    b = 0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short
    return lightness, math.hypot(a, b), math.degrees(math.atan2(b, a)) % 360


def lab(rgb: Rgb) -> Lab:
    """Return a colour in CIELAB (D65)."""
    red, green, blue = rgb
    x = (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047
    y = 0.2126729 * red + 0.7151522 * green + 0.0721750 * blue
    z = (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883
    fx, fy, fz = (_lab_root(part) for part in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def ciede2000(one: Lab, other: Lab) -> float:
    """Return the colour difference of two CIELAB colours (Sharma, Wu and Dalal 2005)."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    stretch = 1 + 0.5 * (1 - _chroma_term((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2))
    c1, h1 = _polar(a1 * stretch, b1)
    c2, h2 = _polar(a2 * stretch, b2)
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    turn, hue = _hues(c1, h1, c2, h2)
    t = (
        1
        - 0.17 * _cos(hue - 30)
        + 0.24 * _cos(2 * hue)
        + 0.32 * _cos(3 * hue + 6)
        - 0.20 * _cos(4 * hue - 63)
    )
    bow = (light - 50) ** 2
    dl = (l2 - l1) / (1 + 0.015 * bow / math.sqrt(20 + bow))
    dc = (c2 - c1) / (1 + 0.045 * chroma)
    dh = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn) / 2) / (1 + 0.015 * chroma * t)
    twist = math.sin(math.radians(60 * math.exp(-(((hue - 275) / 25) ** 2))))
    return math.sqrt(dl**2 + dc**2 + dh**2 - 2 * twist * _chroma_term(chroma) * dc * dh)


def _hues(c1: float, h1: float, c2: float, h2: float) -> tuple[float, float]:
    """Return the turn from one hue to the other and the hue between them, in degrees."""
    if c1 * c2 == 0:
        return 0, h1 + h2
    turn = (h2 - h1 + 180) % 360 - 180
    if turn == -180:
        turn = h2 - h1
    if abs(h1 - h2) <= 180:
        return turn, (h1 + h2) / 2
    return turn, (h1 + h2 + (360 if h1 + h2 < 360 else -360)) / 2


def _polar(a: float, b: float) -> tuple[float, float]:
    return math.hypot(a, b), math.degrees(math.atan2(b, a)) % 360


def _chroma_term(chroma: float) -> float:
    return math.sqrt(chroma**7 / (chroma**7 + 25**7))


def _cos(degrees: float) -> float:
    return math.cos(math.radians(degrees))


def _lab_root(part: float) -> float:
    return math.cbrt(part) if part > 216 / 24389 else (24389 / 27 * part + 16) / 116


def _luminance(rgb: Rgb) -> float:
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def _decoded(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def _encoded(part: float) -> float:
    return 12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055
