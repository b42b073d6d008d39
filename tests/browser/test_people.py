"""Several people on the page: a name per browser, and images that were decided differently."""

import json

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
    page.keyboard.press("1")
    page.locator("#grid[aria-busy=false]").wait_for()
    with Project.open(project) as made:
        assert made.journal.marks == {}
        assert name in made.journal.current
    assert page.locator("#pinned-title").inner_text() != "Decided differently"
