"""Thanks, praise, background and wishes to know in five languages, beside what looks like them and orders something."""

import pytest

from routing.decision.router import Mode, Signals, SiteSignals, decide
from routing.policy.platform import Policy, platform_policy

ORDERS = (
    "Danke, sieht super aus, jetzt noch die Preise anpassen",
    "Super geworden, jetzt die Preise anpassen",
    "Me encanta, cambia todo a azul",
    "Me encanta y cambia todo a azul",
    "Je voudrais savoir si vous pouvez changer le titre",
    "Vorrei capire se potete aggiungere una foto",
    "Nur zur Info: wir haben jetzt samstags geschlossen",
    "Pour info, le photographe s'appelle maintenant Paul",
    "Ich möchte, dass Besucher die Preise verstehen",
    "Wir wollen die Termine selbst eintragen können",
    "No hace falta cambiar el texto, solo la foto del equipo",
    "Il ne faut rien changer au texte, mais le bouton doit être plus grand",
    "Niente da cambiare nel menu, ma la foto è vecchia",
    "An den Texten bitte nichts ändern, nur das Bild tauschen",
    "Grazie mille! Il sito è bellissimo. Manca solo il numero di telefono.",
    "¿Cuándo vais a cambiar el teléfono? Ya os lo pedí",
    "Bravo pour le site ! Le titre est trop petit.",
    "Quiero que la gente entienda y aprenda qué hacemos",
    "Ich wüsste gern, ob ihr das Logo tauschen könnt",
    "Vogliamo far capire ai clienti quanto siamo veloci",
    "Buon lavoro, e aggiungete anche la partita IVA",
    "Explícame en la página cómo se pide cita",
    "Erklär auf der Startseite, wie die Buchung funktioniert",
    "Expliquez sur la page d'accueil comment réserver",
    "Qui sommes-nous ? section avec nos photos",
    "Grazie, cambiate il titolo in rosso",
    "Danke, jetzt bitte noch das Logo größer",
    "Merci, enlevez aussi la photo du chien",
    "gracias pero quita el banner",
    "thanks, now the logo bigger",
    "Machst du das Logo größer?",
    "Est-ce qu'on peut ajouter une page contact ?",
    "On met le titre en rouge ?",
    "Me cambias el título?",
    "Mi cambiate il titolo in alto?",
    "Könnt ihr die Öffnungszeiten ändern?",
    "Habt ihr Zeit, heute noch das Banner zu tauschen?",
    "Muss der Text so klein sein?",
    "Avez-vous la possibilité de remplacer la photo ?",
    "Hast du gesehen, dass Tuesday statt Dienstag da steht?",
    "Lassen wir das Bild so, nur die Überschrift kleiner",
    'Was bedeutet "Slug"? Ändere "Start" in "Home".',
    "Nur aus Neugier gefragt, und mach das Logo größer",
    "An der Startseite nichts ändern, mach das Kontaktformular größer",
    "Rien à changer sur l'accueil, mettez la carte en bas",
    "No hace falta tocar el menú, pon el mapa arriba",
    "the header looks good now, the footer too small",
    "lovely work on the hero, the footer a bit smaller",
    "give me a minute-by-minute schedule on the events page",
    "my customers love the photos, more of them",
    "that's all wrong, the phone number ends in 7",
    "das ging schnell kaputt: das Menü",
    "passt schon, nur das Logo kleiner",
    "va bene così, ma il titolo in rosso",
    "not sure yet about blue, green instead",
    "test it",
    "My sister thinks the grey is dull and I've come round to it, so let's go with a warm white",
    "Can you explain on the homepage that we only take cash",
    "could you clarify in the FAQ how long a refund takes?",
    "forget the banner, a map instead",
    "alles klar, dann die Preise in Euro",
)
TALK = (
    "Danke euch, alles wunderbar geworden!",
    "Muchas gracias por el cambio, ha quedado perfecto.",
    "Merci, c'est parfait ! Bonne journée",
    "Ich wüsste gern, wie viele Bilder in der Galerie sind.",
    "Me gustaría saber quién escribió el texto de la portada",
    "Volevo capire come funziona la pubblicazione",
    "Je cherche à comprendre la différence entre un brouillon et une page publiée.",
    "Para que lo sepas: mañana no estaré. No hace falta que hagas nada.",
    'Was bedeutet "Meta-Titel ändern" in der Mail von Google?',
    "Could one build a booking system into this? Just asking out of curiosity.",
    "Gracias!",
    "Merci beaucoup",
    "C'è un errore nel prezzo della margherita?",
    "you're a star",
    "lovely work as always",
    "that's all, bye",
    "forget it",
    "sorry, wrong chat",
    "give me a minute",
    "not sure yet",
    "the site looks really good now",
    "my customers love the new site",
    "that's exactly what I wanted",
    "vielen lieben Dank",
    "alles klar, danke",
    "ich muss erst meinen Mann fragen",
    "das ging ja schnell",
    "nein danke, das war's",
    "egal, vergiss es",
    "laissez tomber",
    "olvídalo",
    "va bene così",
    "sei un robot?",
    "bedankt, ziet er mooi uit",
    "laat maar",
    "Can you explain the difference between the about page and the team page",
)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return platform_policy()


@pytest.mark.parametrize("prompt", ORDERS)
def test_a_courtesy_a_wish_to_know_or_a_thing_left_alone_hides_no_order(prompt: str, policy: Policy) -> None:
    assert decide(Signals(prompt=prompt, site=SiteSignals(files=6)), policy).mode is Mode.ACTION


@pytest.mark.parametrize("prompt", TALK)
def test_what_says_itself_that_nothing_is_to_be_done_is_answered(prompt: str, policy: Policy) -> None:
    assert decide(Signals(prompt=prompt, site=SiteSignals(files=6)), policy).mode is Mode.ANSWER
