use jiff::Timestamp;

use super::*;
use crate::cli::{dashboard::view::RowUrgency, events::EventLine};
use mcm_insight::story::{DEPLOYMENT, ExplainedWait, MACHINE, ManagerLease, ObjectRemedy};
use mcm_rules::plan::{
    SubjectRef, WaitKind,
    guide::{RemedyDanger, WaitEnd},
    shell::CommandCluster,
};

/// Would be a program, if any part of the page took it as it is.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&";

fn subject(kind: &str, name: &str) -> SubjectRef {
    SubjectRef { kind: kind.to_owned(), namespace: "demo".to_owned(), name: name.to_owned() }
}

fn answer(kind: &str, name: &str, text: &str) -> ObjectAnswer {
    let remedy = ObjectRemedy {
        text: text.to_owned(),
        note: "a note",
        danger: RemedyDanger::KillsPods,
        cluster: CommandCluster::Target,
    };
    let wait = ExplainedWait {
        kind: WaitKind::Eviction,
        text: text.to_owned(),
        meaning: "A budget allows no eviction.",
        end: WaitEnd::Others,
        next_attempt: None,
        forced_at: Some(Timestamp::from_second(660).unwrap()),
        since: None,
        plans: None,
        remedies: vec![remedy],
    };
    ObjectAnswer {
        since: Some(Timestamp::from_second(360).unwrap()),
        failed: Some(text.to_owned()),
        ..ObjectAnswer::new(subject(kind, name), ObjectVerdict::Blocked, text.to_owned(), vec![wait])
    }
}

/// A page whose every text is the given one.
fn shown(text: &str) -> String {
    let line = EventLine {
        first: Timestamp::from_second(400).unwrap(),
        last: Timestamp::from_second(500).unwrap(),
        kind: text.to_owned(),
        namespace: text.to_owned(),
        name: text.to_owned(),
        is_named_fully: false,
        reason: text.to_owned(),
        message: text.to_owned(),
        is_warning: true,
        count: 14,
    };
    let managers = [ManagerLease {
        lease: text.to_owned(),
        role: "sets".to_owned(),
        holder: text.to_owned(),
        renewed: None,
        lasts: jiff::SignedDuration::from_secs(15),
        exists: true,
        frozen: None,
        parked: None,
    }];
    let bar = MachineBar { wanted: 3, new: 1, starting: 1, old: 2, going: 1, available: 2 };
    let machine = answer(MACHINE, text, text);
    let chosen = ChosenDeployment {
        answer: ObjectAnswer { machines: vec![machine.clone()], ..answer(DEPLOYMENT, text, text) },
        bar,
        strategy: text.to_owned(),
        machines: vec![machine],
        events: vec![&line],
    };
    page(&DashboardView {
        namespace: text,
        cluster: text,
        now: Timestamp::from_second(600).unwrap(),
        deployments: vec![DashboardRow {
            name: text.to_owned(),
            verdict: ObjectVerdict::Blocked,
            urgency: RowUrgency::Blocked,
            since: Some(Timestamp::from_second(360).unwrap()),
            bar,
        }],
        chosen: Some(chosen),
        managers: &managers,
        notes: &[text.to_owned()],
        silence: Some(ServerSilence { since: Timestamp::from_second(600).unwrap(), error: text.to_owned() }),
        ownerless: vec![answer(MACHINE, text, text)],
        orphans: vec![&line],
        vms: text.to_owned(),
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

#[test]
fn the_last_state_of_a_cluster_that_does_not_answer_is_marked() {
    let html = shown("pool");
    let expected = "no answer of the control cluster since <time datetime=\"1970-01-01T00:10:00Z\">00:10:00 UTC</time>";
    assert!(html.contains(expected) && html.contains("last state (pool)"), "{html}");
}

#[test]
fn a_page_that_is_loaded_again_is_that_of_the_same_deployment() {
    let html = shown("pool a");
    assert!(html.contains("<body data-query=\"?deployment=pool%20a\">"), "{html}");
    assert!(html.contains("http-equiv=\"refresh\" content=\"5; url=?deployment=pool%20a\""), "{html}");
}

#[test]
fn a_command_has_a_button_that_copies_it_and_an_instruction_has_none() {
    let command = shown("mcm why pool -n demo");
    assert!(command.contains("<code>mcm why pool -n demo</code> <button type=\"button\" class=\"copy\""), "{command}");
    let instruction = shown("correct the class");
    let remedies = &instruction[instruction.find("class=\"remedies\"").unwrap()..];
    assert!(!remedies[..remedies.find("</ul>").unwrap()].contains("<button"), "{instruction}");
}

#[test]
fn machines_without_a_set_and_vms_without_a_machine_are_listed() {
    let html = shown("pool");
    let places = ["What happened", "Without an owner", "VMs without a machine"].map(|title| html.find(title).unwrap());
    assert!(places.is_sorted(), "{html}");
}
