import pytest

from sites.spec.languages.address import address_line, address_of, changes_address
from tests.unit.sites.spec.samples import demo_site


@pytest.mark.parametrize(
    ("request_", "is_informal"),
    [
        ("Bitte auf Deutsch, in der Du-Form", True),
        ("Eine deutsche Fassung, wir siezen", False),
        ("Bitte auf Deutsch. Wir duzen nicht und siezen eher.", False),
        ("Auf Deutsch, aber nicht duzen", False),
        ("Auf Deutsch. Bei uns wird geduzt", True),
        ("Auf Deutsch, bitte siezen, nicht duzen", False),
        ("Auf Deutsch, duzen statt siezen", True),
        ("Una versione italiana, senza dare del lei", True),
        ("En français, on ne tutoie pas nos clients", False),
        ("En français, on tutoie tout le monde", True),
        ("En español, sin tutear", False),
        ("In het Nederlands, niet tutoyeren", False),
        ("A German version please, not too formal", True),
        ("A German version please, formal, no du", False),
        ("A German version please", False),
    ],
)
def test_a_request_says_how_visitors_are_addressed_also_by_what_it_rules_out(request_: str, is_informal: bool) -> None:
    """'Wir duzen nicht' asked for 'Sie', and each part of the translation was told to say 'du' (issue 20)."""
    assert ("informally" in address_line(demo_site(), request_)) is is_informal


@pytest.mark.parametrize(
    ("text", "lang", "familiar"),
    [
        ("Cuéntanos qué te pasa y tu moto", "es", True),
        ("Helados de la casa. Pide el tuyo, y escríbenos.", "es", True),
        ("Os esperamos: preguntad por vuestras fechas", "es", True),
        ("Os llega una foto, para que durmáis también", "es", True),
        ("Llámanos, por favor; le atenderemos a usted y a ustedes", "es", False),
        ("Apúntate: la primera semana es gratis", "es", True),
        ("Seis mesas, y los martes cerramos", "es", False),
        ("Apúntese rápidamente: el éxito es un chocolate", "es", False),
        ("Escríbanos y le decimos las fechas", "es", False),
        ("Wann willst du anfangen? Dein Auto steht bereit.", "de", True),
        ("Wir nehmen uns Zeit für Sie und Ihre Familie.", "de", False),
        (["Ihr könnt nicht lange stehen?", "Wer unten auf euch wartet"], "de", True),
        (["Bevor ihr runterkommt", "Bringt Handschuhe mit"], "de", True),
        (["Unsere Gäste und ihr Hund", "Ihr Termin bei uns"], "de", False),
        (["Wir freuen uns auf Ihren Besuch", "Eine Frage? Ihr Anruf hilft"], "de", False),
        ("Venez quand vous voulez, votre table est prête", "fr", False),
        ("Bring your chair", "en", False),
    ],
)
def test_a_form_speaks_to_visitors_as_the_words_of_the_site_do(text: object, lang: str, familiar: bool) -> None:
    """A page said `vosotros`, and its form `su nombre`; a cellar said `ihr`, and its form `Ihr Name` (issue 20)."""
    assert address_of({"text": text}, lang) is familiar


@pytest.mark.parametrize(
    ("request_", "changes", "is_informal"),
    [
        ("Bitte duzen Sie unsere Gäste ab jetzt überall auf der Website statt sie zu siezen.", True, True),
        ("Schreib die ganze Seite in der Du-Form statt mit Sie", True, True),
        ("Wir möchten überall du statt Sie sagen", True, True),
        ("Bitte alle Texte auf Sie umstellen", True, False),
        ("Sie statt du, bitte", True, False),
        ("Change the texts from Sie to du", True, True),
        ("Tutoyez nos clients sur tout le site au lieu de les vouvoyer", True, True),
        ("Tutea a los clientes en toda la web en vez de usar usted", True, True),
        ("Dai del tu ai clienti in tutto il sito invece del Lei", True, True),
        ("Spreek onze klanten overal met je aan in plaats van u", True, True),
        ("Ein neuer Abschnitt über Kurse, in der Du-Form", False, True),
        ("Make the whole site less formal", False, None),
        ("Zeigen Sie alle Preise statt nur einen", False, None),
        ("Bitte auf allen Unterseiten duzen", True, True),
        ("Bitte überall auf der neuen Website duzen", True, True),
        ("Tutoyer tous les visiteurs", True, True),
        ("Tutear en todas las páginas", True, True),
        ("Siezen Sie alle Patienten auf der ganzen Website, nicht nur auf der Startseite", True, False),
        ("Ein neuer Abschnitt über alle Kurse, in der Du-Form", False, None),
        ("Wir freuen uns auf Sie um 18 Uhr", False, None),
        ("Add a page for all our tutees", False, None),
        ("Zeigen Sie Fotos statt Ihr Logo", False, None),
        ("Nur in der Überschrift du statt Sie", False, None),
        ("Wir siezen alle Gäste weiterhin. Ändere nur die Telefonnummer", False, None),
    ],
)
def test_another_address_of_all_visitors_is_one_wish(request_: str, changes: bool, is_informal: bool | None) -> None:
    """A site was to say `du` throughout, which no edit of the document has room for (issue 20)."""
    assert changes_address(request_) is changes
    if is_informal is not None:
        assert ("informally" in address_line(demo_site(), request_)) is is_informal
