"""Damage to files."""

from hypothesis import strategies as st


@st.composite
def damages(draw):
    """A change of bytes: cut off, flipped, replaced by those of the beginning, lost."""
    kind, where, length = draw(st.integers(0, 3)), draw(st.floats(0, 1)), draw(st.integers(1, 40))

    def damage(content):
        content, place = bytearray(content), int(where * len(content))
        if kind == 0:
            del content[place:]
        elif kind == 1 and place < len(content):
            content[place] ^= 1 << length % 8
        elif kind == 2:
            content[place : place + length] = content[:length]
        else:
            del content[place : place + length]
        return bytes(content)

    return damage
