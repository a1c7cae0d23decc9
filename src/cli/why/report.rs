//! The answer as text, for 80 columns.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::story::{Answer, CLASS, Manager, Told, Verdict, ago};
use crate::cli::table::table;

/// Columns of a line.
const WIDTH: usize = 80;
/// Column in which texts begin.
const INDENT: usize = 13;
/// Machines that are shown with their waits.
const MOST_MACHINES: usize = 10;
/// Steps that are shown.
const MOST_STEPS: usize = 5;

impl Verdict {
    /// As users read it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Progressing => "progressing",
            Self::Waiting => "WAITING",
            Self::Unknown => "UNKNOWN",
            Self::Blocked => "BLOCKED",
        }
    }
}

/// The answer for one object. `manager` is the manager whose controllers act on it.
pub(super) fn one(answer: &Answer, manager: Option<&Manager>, notes: &[String], now: Timestamp) -> String {
    let mut text = head(answer, now);
    for wait in &answer.waits {
        text.push('\n');
        push_wait(&mut text, wait, now);
    }
    if let Some(failed) = &answer.failed {
        section(&mut text, "failed", failed);
    }
    for (number, step) in answer.next.iter().take(MOST_STEPS).enumerate() {
        let label = if number == 0 { "next" } else { "" };
        section(&mut text, label, &format!("{}: {}", step.action, step.reason));
    }
    if let Some(more) = answer.next.len().checked_sub(MOST_STEPS).filter(|more| *more > 0) {
        section(&mut text, "", &format!("and {more} more steps"));
    }
    push_machines(&mut text, answer, now);
    for (number, owner) in answer.owners.iter().enumerate() {
        section(&mut text, if number == 0 { "owned by" } else { "" }, &format!("{} {}", owner.kind, owner.name));
    }
    push_remedies(&mut text, answer);
    text.push('\n');
    if let Some(manager) = manager.filter(|_| answer.object.kind != CLASS) {
        section(&mut text, "manager", &manager.state(now));
    }
    notes.iter().for_each(|note| section(&mut text, "note", note));
    text
}

/// Everything that is not settled in a namespace.
pub(super) fn all(
    answers: &[Answer],
    managers: &[Manager],
    namespace: &str,
    notes: &[String],
    now: Timestamp,
) -> String {
    let mut text = String::new();
    if answers.is_empty() {
        text = format!("nothing waits in namespace {namespace}\n");
    } else {
        let row = |answer: &Answer| {
            let since = answer.since.map(|since| ago(now, since)).unwrap_or_default();
            let object = format!("{}/{}", answer.object.kind, answer.object.name);
            [object, answer.verdict.word().to_owned(), since, reason(answer)]
        };
        text.push_str(&table(&["object", "state", "since", "waits for"], answers.iter().map(row)));
        text.push('\n');
    }
    managers.iter().for_each(|manager| section(&mut text, "manager", &manager.state(now)));
    notes.iter().for_each(|note| section(&mut text, "note", note));
    text
}

fn head(answer: &Answer, now: Timestamp) -> String {
    let object = &answer.object;
    let head = format!("{} {}/{} is {}", object.kind, object.namespace, object.name, answer.verdict.word());
    let since = answer.since.map(|since| ago(now, since)).unwrap_or_default();
    let gap = WIDTH.saturating_sub(head.len() + since.len()).max(2);
    let mut text = format!("{head}{}{since}", " ".repeat(gap)).trim_end().to_owned();
    text.push('\n');
    if !answer.state.is_empty() {
        section(&mut text, "state", &answer.state);
    }
    text
}

fn push_wait(text: &mut String, wait: &Told, now: Timestamp) {
    section(text, "waits for", &wait.text);
    if let Some(until) = wait.until {
        let left = ago(until, now);
        section(text, "until", &format!("{until:.0}, in {left}, at the latest"));
    }
    section(text, "because", wait.meaning);
    section(text, "", &format!("({}: {})", wait.kind, wait.end.text()));
}

fn push_machines(text: &mut String, answer: &Answer, now: Timestamp) {
    for (number, machine) in answer.machines.iter().take(MOST_MACHINES).enumerate() {
        if number == 0 {
            text.push('\n');
        }
        let since = machine.since.map(|since| format!(" for {}", ago(now, since))).unwrap_or_default();
        let line = format!("{} is {}{since}: {}", machine.object.name, machine.state, reason(machine));
        section(text, if number == 0 { "machines" } else { "" }, &line);
    }
    if let Some(more) = answer.machines.len().checked_sub(MOST_MACHINES).filter(|more| *more > 0) {
        section(text, "", &format!("and {more} more machines that are not settled"));
    }
}

/// The worst wait, failure or next step in one line.
fn reason(answer: &Answer) -> String {
    let wait = answer.waits.first().map(|wait| wait.text.clone());
    let step = answer.next.first().map(|step| format!("next: {}: {}", step.action, step.reason));
    wait.or(step).or_else(|| answer.failed.clone()).unwrap_or_else(|| answer.state.clone())
}

fn push_remedies(text: &mut String, answer: &Answer) {
    let mut remedies = Vec::new();
    for remedy in answer.waits.iter().flat_map(|wait| &wait.remedies) {
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    if let Some(machine) = answer.machines.first() {
        text.push('\n');
        section(text, "you can", &format!("mcm why machine/{} -n {}", machine.object.name, machine.object.namespace));
    } else if !remedies.is_empty() {
        text.push('\n');
    }
    for (number, remedy) in remedies.iter().enumerate() {
        let label = if number == 0 && answer.machines.is_empty() { "you can" } else { "" };
        section(text, label, &remedy.text);
        let note = if remedy.note.is_empty() { String::new() } else { format!(": {}", remedy.note) };
        section(text, "", &format!("({}{note})", remedy.danger.text()));
    }
}

/// A label and its text, wrapped.
fn section(text: &mut String, label: &str, content: &str) {
    let mut label = label;
    for line in wrapped(content, WIDTH - INDENT) {
        let _ = writeln!(text, "  {label:<width$}{line}", width = INDENT - 2);
        label = "";
    }
}

/// Lines of at most `width` columns. A longer word has a line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
