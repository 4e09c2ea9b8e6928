"""Draw the picture of README.md: `python docs/scripts/readme_picture.py`."""

from pathlib import Path

import matplotlib.pyplot as plt

import cavity


def main():
    """Draw coefficients, a robust curve and a mixture side by side."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    table, about = cavity.data.table("pima", as_frame=True)
    numbers = table.drop(columns=["set", "type"])
    numbers = (numbers - numbers.mean()) / numbers.std()  # of one scale, so that intervals can be compared
    cavity.GLM("logit", intercept=True).fit(numbers, table["type"]).plot(ax=left, title=about["title"])
    table, about = cavity.data.table("motorcycle", as_frame=True)
    robust = cavity.GaussianProcess("rbf", "student-t").fit(table, "acceleration")
    robust.plot(ax=middle, title="Acceleration of a helmet, Student-t noise")
    table, about = cavity.data.table("faithful", as_frame=True)
    selection = cavity.select_components(cavity.GaussianMixture(1), table, range(1, 7))
    selection.best.plot(table, ax=right, title=about["title"])
    figure.savefig(Path(__file__).parents[1] / "readme.png", dpi=100)


if __name__ == "__main__":
    main()
