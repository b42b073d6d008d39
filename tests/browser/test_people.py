"""Several people on the page: a name per browser, and images that were decided differently."""

import json

from PIL import Image

from fewlabels.labeling.project import Project


def test_each_browser_has_a_name_that_goes_with_its_decisions(project, serve, visit):
    address = serve(project)
    anna, ben = visit(address), visit(address)
    for page, name in ((anna, "Anna Ö."), (ben, "ben")):
        assert page.locator("#who").is_hidden()  # nothing changes for one person
        page.keyboard.press("?")
        page.locator("#person").fill(name)
        page.keyboard.press("Enter")
        page.locator("#help").wait_for(state="hidden")
        assert page.locator("#who").inner_text() == name
        page.locator("[data-view=class]").click()
        page.locator("#candidates[aria-busy=false] button:enabled").first.wait_for()
        page.keyboard.press("1")
        page.locator("#grid[aria-busy=false]").wait_for()
    ben.reload()
    ben.wait_for_selector(".tile")
    assert ben.locator("#who").inner_text() == "ben"
    decided = [
        (each[2], each[5])
        for line in (project / "decisions.jsonl").read_text(encoding="utf-8").splitlines()
        for each in json.loads(line).get("decisions", [])
    ]
    assert decided[-2:] == [("person", "Anna Ö."), ("person", "ben")]
    # Who else decided is named where one would undo it.
    anna.reload()
    anna.wait_for_selector(".tile")
    assert anna.locator("#undo").get_attribute("title").startswith("Undo: ben: ")
    assert not ben.locator("#undo").get_attribute("title").startswith("Undo: ben: ")


def test_images_decided_differently_come_first_and_are_decided_one_by_one(project, serve, visit):
    name = "apple/05.png"
    with Project.open(project, write=True) as made:
        for person, label in (("anna", "apple"), ("ben", "plum")):
            made.journal.decide({name: label}, origin="person", people={name: person})
        made.journal.decide({name: None}, origin="person", mark="conflict")
    page = visit(serve(project))
    page.locator("#grid[aria-busy=false]").wait_for()
    page.locator("[data-view=check]").click()
    assert page.locator("#pinned-title").inner_text() == "Decided differently"
    assert page.locator("#item-name").inner_text() == name
    assert page.locator("#item-note").inner_text().endswith("decided as apple by anna, plum by ben")
    page.locator("#history li").first.wait_for()
    assert page.locator("#history").inner_text().count("anna") == 1
    # Confirming all sure ones of the class leaves it open.
    page.locator("[data-view=class]").click()
    page.keyboard.press("Shift+Enter")
    page.locator("#grid[aria-busy=false]").wait_for()
    with Project.open(project) as made:
        assert made.journal.marks == {name: "conflict"}
    page.locator("[data-view=check]").click()
    page.locator("#candidates[aria-busy=false] button:enabled").first.wait_for()
    page.keyboard.press("1")
    page.locator("#grid[aria-busy=false]").wait_for()
    with Project.open(project) as made:
        assert made.journal.marks == {}
        assert name in made.journal.current
    assert page.locator("#pinned-title").inner_text() != "Decided differently"


def test_a_burst_is_shown_and_labelled_together(project, serve, visit):
    photos = project.parent / "photos" / "leek"
    for i, path in enumerate(sorted(photos.glob("*.png"))[10:14]):
        exif = Image.Exif()
        exif.get_ifd(0x8769)[0x9003] = f"2024:05:01 10:00:0{i}"
        with Image.open(path) as image:
            pixels = image.convert("RGB")
        pixels.save(path, "JPEG", quality=95, exif=exif)
    page = visit(serve(project))
    page.locator("#grid[aria-busy=false]").wait_for()
    page.locator("#filter").fill("leek/11")
    page.keyboard.press("Enter")
    page.locator("#item-name", has_text="leek/11.png").wait_for()
    page.keyboard.press("b")
    page.locator("#pinned-title", has_text="Burst of leek/11.png").wait_for()
    page.locator("#item-name", has_text="4 images selected").wait_for()
    page.keyboard.press("l")
    page.keyboard.type("fennel")
    page.keyboard.press("Enter")
    page.locator("#grid[aria-busy=false]").wait_for()
    with Project.open(project) as made:
        labels = {name: each.label for name, each in made.journal.current.items()}
    assert {name for name, label in labels.items() if label == "fennel"} == {
        f"leek/{i}.png" for i in range(10, 14)
    }


def test_the_seconds_of_a_burst_are_those_of_the_server(project, serve, visit):
    from fewlabels.data.bursts import SECONDS

    address = serve(project)
    for seconds in (SECONDS, 7.5):
        page = visit(address)

        def answer(route, _, seconds=seconds):
            found = route.fetch().json()
            assert found["burst_seconds"] == SECONDS
            route.fulfill(json={**found, "burst_seconds": seconds})

        page.route("**/api/project", answer)
        page.reload()
        page.locator("#grid[aria-busy=false]").wait_for()
        page.keyboard.press("b")
        page.locator("#toast", has_text=f"within {seconds:g} seconds of").wait_for()
        page.keyboard.press("?")
        assert f"at most {seconds:g} seconds after" in page.locator("#help").inner_text()
