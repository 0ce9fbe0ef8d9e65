from sites.spec.languages.new_texts import set_new_texts
from sites.spec.model import INDEX, parse_site
from tests.unit.sites.spec.samples import element, page


def test_only_texts_that_an_edit_writes_keep_their_ranges_and_numbers_on_one_line() -> None:
    """On a phone '9–' stood at a line's end, also where an edit had written it (issue 20)."""
    was = page(story=element("RichText", heading="Open 9–5", body="We're here from 9–5, ring 020 555 0199"))
    hours = [{"days": "Mon–Fri", "time": "8–12"}]
    form = element("ContactForm", phone="020 555 0199", hours=hours, action="https://forms.example/9-5")
    news = element("RichText", heading="Summer: 8–12", body="It's 30 km. [Bus](bus-8-12.html) at 9 am")
    now = page(story=was["elements"]["story"], news=news, contact=form)
    elements = set_new_texts(parse_site(was), parse_site(now)).pages[INDEX]["elements"]
    assert elements["story"] == was["elements"]["story"]
    assert elements["news"]["props"] == {
        "heading": "Summer: 8–\u206012",
        "body": "It's 30\xa0km. [Bus](bus-8-12.html) at 9\xa0am",
    }
    assert elements["contact"]["props"] == {
        **form["props"],
        "hours": [{"days": "Mon–\u2060Fri", "time": "8–\u206012"}],
    }


def test_a_text_that_would_be_too_long_stays_as_it_is() -> None:
    label = "x" * 57 + "8–9"
    site = parse_site(page(one=element("RichText", eyebrow=label, body="y")))
    assert set_new_texts(parse_site(page(one=element("RichText", body="y"))), site) == site
