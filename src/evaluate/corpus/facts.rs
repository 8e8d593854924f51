//! Office and support memories in English.

use super::{Fact, fill};
use crate::evaluate::Rng;

const NAMES: &[&str] = &[
    "Amara", "Bjorn", "Celia", "Dmitri", "Esther", "Farid", "Greta", "Hiro", "Ines", "Jonas", "Katya", "Liam", "Mina",
    "Noor", "Otto", "Priya",
];
const MEETINGS: &[&str] = &[
    "budget review",
    "design critique",
    "planning round",
    "retrospective",
    "onboarding session",
    "supplier call",
    "safety briefing",
    "release check",
    "hiring sync",
    "quarterly kick-off",
];
const DAYS: &[&str] = &["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"];
const TIMES: &[&str] = &["at 9:00", "at 10:30", "at 13:15", "at 14:00", "at 16:45", "in the early morning"];
const PLACES: &[&str] = &["the north room", "the library", "room 4", "the annex", "the video channel", "the canteen"];
const DOCS: &[&str] = &[
    "annual report",
    "price list",
    "test protocol",
    "travel plan",
    "migration guide",
    "floor plan",
    "grant proposal",
    "inventory sheet",
    "training slides",
    "contract draft",
];
const SYSTEMS: &[&str] = &[
    "billing service",
    "search index",
    "mail gateway",
    "warehouse scanner",
    "booking portal",
    "photo archive",
    "build server",
    "ticket desk",
    "sensor hub",
    "map service",
];
const THINGS: &[&str] = &["log files", "backups", "session records", "reports", "thumbnails", "old versions"];
const CITIES: &[&str] = &["Lisbon", "Oslo", "Nairobi", "Kyoto", "Lima", "Gdansk", "Porto", "Tallinn"];
const STYLES: &[&str] = &[
    "short answers",
    "tables",
    "metric units",
    "bullet points",
    "formal letters",
    "plain text",
    "worked examples",
    "24-hour times",
];
const CONTEXTS: &[&str] = &["status mails", "trip reports", "code reviews", "meeting notes", "lab results", "orders"];
const SYMPTOMS: &[&str] = &[
    "labels print twice",
    "search finds nothing",
    "images load slowly",
    "the form forgets its date",
    "totals are off by one cent",
    "invitations arrive late",
];
const FIXES: &[&str] = &[
    "a restart",
    "clearing the browser cache",
    "a new cable",
    "the update of last week",
    "a longer timeout",
    "removing the duplicate entry",
];
const FOODS: &[&str] = &["vegetarian lunches", "green tea", "gluten-free bread", "espresso", "rice dishes", "fruit"];
const NUMBERS: &[&str] = &["3", "5", "14", "21", "30", "45", "60", "90"];

const SLOTS: &[(&str, &[&str])] = &[
    ("name", NAMES),
    ("meeting", MEETINGS),
    ("day", DAYS),
    ("time", TIMES),
    ("place", PLACES),
    ("doc", DOCS),
    ("system", SYSTEMS),
    ("thing", THINGS),
    ("city", CITIES),
    ("style", STYLES),
    ("context", CONTEXTS),
    ("symptom", SYMPTOMS),
    ("fix", FIXES),
    ("food", FOODS),
    ("n", NUMBERS),
];

/// Memory, and the question it answers.
const FORMS: &[(&str, &str)] = &[
    ("{name} prefers {style} in {context}.", "What does {name} prefer in {context}?"),
    ("For {context}, {name} would like {style}.", "How should {context} for {name} look?"),
    ("{name} likes {food} and said so during the {meeting}.", "What does {name} like to eat or drink?"),
    ("The {meeting} takes place on {day} {time} in {place}.", "When is the {meeting}?"),
    ("{meeting}: every {day}, {place}, chaired by {name}.", "Who chairs the {meeting}?"),
    ("{name} moved the {meeting} to {day} {time}.", "Which day did the {meeting} move to?"),
    ("{name} has to finish the {doc} before {day}.", "Who finishes the {doc}?"),
    ("The {doc} was reviewed by {name}; two figures are still missing.", "Who reviewed the {doc}?"),
    ("A first version of the {doc} lies in {place}.", "Where is the {doc}?"),
    ("Questions about the {system} go to {name}.", "Who knows the {system}?"),
    ("The {system} keeps its {thing} for {n} days.", "How long does the {system} keep {thing}?"),
    ("The {system} was moved to a larger machine in week {n}.", "When was the {system} moved?"),
    ("{name} flies to {city} on {day} and works from there for {n} days.", "When does {name} travel to {city}?"),
    ("The office in {city} has {n} desks and opens on {day}.", "How many desks are in {city}?"),
    ("A customer said that {symptom} in the {system}; {fix} helped.", "What helps when {symptom}?"),
    ("{name} found out why {symptom}: the {system} had run out of memory.", "Why did it happen that {symptom}?"),
    ("During the {meeting} the team chose the {system} of the vendor in {city}.", "What was chosen in the {meeting}?"),
    ("{name} and the {city} team share the {doc} since {day}.", "Who shares the {doc} with {city}?"),
    ("The {meeting} was quiet; {name} only asked about the {doc}.", "What did {name} ask about the {doc}?"),
    (
        "{name} is on leave until {day}, the {system} is looked after by the {city} team.",
        "Who looks after the {system}?",
    ),
];

/// A random memory.
pub(super) fn fact(rng: &mut Rng) -> Fact {
    let at = rng.below(FORMS.len());
    let (text, question) = FORMS[at];
    let [text, question] = fill([text, question], SLOTS, rng);
    Fact { template: format!("own/{at}"), text, question: Some(question) }
}
