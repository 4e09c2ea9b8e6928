"""Files that nothing here runs: the recipe for conda packages and the workflows name what the package and .ci have."""

import os
import re
import tomllib
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).parents[1]
BUILDERS = {"cibuildwheel", "build"}  # run by pipx
METADATA = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
PROJECT = METADATA["project"]


def read_yaml(path):
    return yaml.safe_load((CHECKOUT / path).read_text())


def normalise(requirements):
    return {requirement.replace(" ", "").lower() for requirement in requirements}


def test_the_recipe_has_the_requirements_of_the_package():
    recipe = read_yaml(".ci/recipe/recipe.yaml")
    needed = recipe["requirements"]
    assert normalise(needed["host"]) == normalise(METADATA["build-system"]["requires"]) | {"python", "pip"}
    assert normalise(needed["run"]) == normalise([*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"])
    about = recipe["about"]
    assert about["license"] == PROJECT["license"]
    assert [about["license_file"]] == PROJECT["license-files"]
    assert re.findall(r"\w+", about["summary"]) == re.findall(r"\w+", PROJECT["description"])
    assert (CHECKOUT / ".ci/recipe" / recipe["source"]["path"]).resolve() == CHECKOUT.resolve()
    commands = [command for test in recipe["tests"] for command in test.get("script", [])]
    assert {command.split()[0] for command in commands} == set(PROJECT["scripts"])


@pytest.mark.parametrize("name", ["ci.yml", "wheels.yml"])
def test_workflows_run_what_exists(name):
    jobs = read_yaml(f".github/workflows/{name}")["jobs"]
    assert {needed for job in jobs.values() for needed in job.get("needs", [])} <= set(jobs)
    for step in (step for job in jobs.values() for step in job["steps"]):
        assert len({"run", "uses"} & set(step)) == 1, step
        assert re.fullmatch(r"[\w-]+/[\w.-]+@[\w./]+", step.get("uses", "a/b@v1"))
        for command in step.get("run", "").splitlines():
            program, *arguments = command.split()
            if program == "pipx":
                assert arguments[1].partition("==")[0] in BUILDERS
            else:
                assert os.access(CHECKOUT / program, os.X_OK), command


def test_wheels_of_the_workflow_are_for_the_python_that_is_promised():
    settings = METADATA["tool"]["cibuildwheel"]
    lowest = "cp" + PROJECT["requires-python"].removeprefix(">=").replace(".", "") + "-*"
    assert settings["build"][0] == lowest
    assert set(settings["test-requires"]) <= set(PROJECT["optional-dependencies"]["test"])
