use jiff::Timestamp;

use super::*;
use crate::cli::{
    events::Line,
    reading::story::{DEPLOYMENT, MACHINE, Manager, Remedied, Told},
};
use mcm_rules::plan::{
    Subject, WaitKind,
    guide::{Danger, End},
};

/// Would be a program, if any part of the page took it as it is.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&";

fn subject(kind: &str, name: &str) -> Subject {
    Subject { kind: kind.to_owned(), namespace: "demo".to_owned(), name: name.to_owned() }
}

fn answer(kind: &str, name: &str, text: &str) -> Answer {
    let remedy = Remedied { text: text.to_owned(), note: "a note", danger: Danger::KillsPods };
    let wait = Told {
        kind: WaitKind::Eviction,
        text: text.to_owned(),
        meaning: "A budget allows no eviction.",
        end: End::Others,
        until: Some(Timestamp::from_second(660).unwrap()),
        since: None,
        plans: None,
        remedies: vec![remedy],
    };
    Answer {
        since: Some(Timestamp::from_second(360).unwrap()),
        failed: Some(text.to_owned()),
        ..Answer::new(subject(kind, name), Verdict::Blocked, text.to_owned(), vec![wait])
    }
}

/// A page whose every text is the given one.
fn shown(text: &str) -> String {
    let line = Line {
        first: Timestamp::from_second(400).unwrap(),
        last: Timestamp::from_second(500).unwrap(),
        kind: text.to_owned(),
        name: text.to_owned(),
        reason: text.to_owned(),
        message: text.to_owned(),
        is_warning: true,
        count: 14,
    };
    let managers = [Manager {
        lease: text.to_owned(),
        role: "sets".to_owned(),
        holder: text.to_owned(),
        renewed: None,
        lasts: jiff::SignedDuration::from_secs(15),
        exists: true,
    }];
    let bar = Bar { wanted: 3, new: 1, old: 2, going: 1, available: 2 };
    let machine = answer(MACHINE, text, text);
    let chosen = Chosen {
        answer: Answer { machines: vec![machine.clone()], ..answer(DEPLOYMENT, text, text) },
        bar,
        strategy: text.to_owned(),
        machines: vec![machine],
        events: vec![&line],
    };
    page(&View {
        namespace: text,
        now: Timestamp::from_second(600).unwrap(),
        deployments: vec![Row {
            name: text.to_owned(),
            verdict: Verdict::Blocked,
            since: Some(Timestamp::from_second(360).unwrap()),
            bar,
        }],
        chosen: Some(chosen),
        managers: &managers,
        notes: &[text.to_owned()],
    })
}

#[test]
fn no_name_and_no_message_becomes_markup() {
    let html = shown(HOSTILE);
    assert!(!html.contains("<img"), "{html}");
    assert!(!failure(HOSTILE).contains("<img"));
    let (hostile, harmless) = (html.matches('<').count(), shown("pool").matches('<').count());
    assert_eq!(hostile, harmless, "the texts add no element");
    assert_eq!(html.matches('"').count(), shown("pool").matches('"').count(), "the texts end no attribute");
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let html = shown("pool");
    assert!(!html.contains("http:") && !html.contains("https:") && !html.contains("style=\""), "{html}");
    assert!(html.contains("<noscript><meta http-equiv=\"refresh\""));
}

#[test]
fn the_reason_comes_first() {
    let html = shown("pool");
    let places = ["Why it does not go on", "Machines · 1", "What happened"].map(|title| html.find(title).unwrap());
    assert!(places.is_sorted());
    assert!(html.contains("waits for <b>pool</b>") && html.contains("×14") && html.contains("blocked 4m"), "{html}");
}

#[test]
fn every_state_has_a_word_beside_its_colour() {
    let html = shown("pool");
    let tile = &html[html.find("<li class=\"tile bad\">").unwrap()..];
    assert!(tile[..tile.find("</li>").unwrap()].contains("blocked"), "{tile}");
}
