//! A rollout as text.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use super::seen::RolloutSnapshot;
use mcm_insight::{
    progress::{RolloutProgress, RolloutState},
    story::ObjectVerdict,
    terminal::{StatusMark, TerminalLook, ago, cut, wrapped},
};

/// Cells of the bar.
const BAR: usize = 30;
/// A shorter time may be that of the command alone.
const SHOWN_FROM: SignedDuration = SignedDuration::from_secs(10);
/// Machines below the bar.
const MOST_MACHINES: usize = 10;

/// The time of the day, UTC.
pub(super) fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M:%S").to_string()
}

/// The word of a state in JSON.
pub(super) const fn word(state: &RolloutState) -> &'static str {
    match state {
        RolloutState::Done => "Done",
        RolloutState::Rolling => "Rolling",
        RolloutState::Waiting(_) => "Waiting",
        RolloutState::Unknown(_) => "Unknown",
        RolloutState::Blocked(_) => "Blocked",
        RolloutState::Failed(_) => "Failed",
    }
}

/// One line for a pipe, without the time.
pub(super) fn line(seen: &RolloutSnapshot) -> String {
    let text = match &seen.state {
        RolloutState::Done => "done".to_owned(),
        RolloutState::Rolling => now(seen),
        RolloutState::Waiting(reason) => waiting(reason),
        RolloutState::Unknown(reason) => format!("unknown: {reason}"),
        RolloutState::Blocked(reason) => format!("blocked: {reason}"),
        RolloutState::Failed(reason) => format!("failed: {reason}"),
    };
    format!("{}: {}: {text}", title(&seen.progress, " "), seen.progress.text())
}

/// A text without the ages in it, such as `35s ago`, which change every second.
pub(super) fn without_ages(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let is_ago = |word: &str| word.strip_prefix("ago").is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
    let is_age = |number: usize| words.get(number + 1).is_some_and(|next| is_ago(next));
    let kept = words.iter().enumerate().filter(|(number, _)| !is_age(*number)).map(|(_, word)| *word);
    kept.collect::<Vec<_>>().join(" ")
}

/// The deployment and its revision, which has no number before its set exists.
fn title(progress: &RolloutProgress, gap: &str) -> String {
    match progress.revision {
        0 => progress.name.clone(),
        revision => format!("{}{gap}revision {revision}", progress.name),
    }
}

/// The next step, or the worst wait.
fn now(seen: &RolloutSnapshot) -> String {
    if seen.answer.verdict == ObjectVerdict::Settled {
        return "the status is not up to date yet".to_owned();
    }
    match seen.answer.next.first() {
        Some(step) => step.action.clone(),
        None => waiting(&seen.answer.reason()),
    }
}

/// A reason as a sentence. That of an object below the deployment is one already.
fn waiting(reason: &str) -> String {
    if reason.contains(" waits for ") { reason.to_owned() } else { format!("waits for {reason}") }
}

/// Some lines for a terminal.
pub(super) fn frame(look: TerminalLook, seen: &RolloutSnapshot, blocked: Option<Timestamp>, at: Timestamp) -> String {
    let progress = &seen.progress;
    // The command may have begun long after the obstacle.
    let blocked = seen.held_since().or(blocked).filter(|since| at.duration_since(*since) >= SHOWN_FROM);
    let held_up = |word: &str| match blocked {
        Some(since) => format!("{word} {}", ago(at, since)),
        None => word.to_owned(),
    };
    let (mark, word) = match &seen.state {
        RolloutState::Done => (StatusMark::Good, "done".to_owned()),
        RolloutState::Rolling => (StatusMark::Busy, "under way".to_owned()),
        RolloutState::Waiting(_) => (StatusMark::Look, held_up("WAITING")),
        RolloutState::Unknown(_) => (StatusMark::Refused, held_up("UNKNOWN")),
        RolloutState::Blocked(_) => (StatusMark::Bad, held_up("BLOCKED")),
        RolloutState::Failed(_) => (StatusMark::Bad, "FAILED".to_owned()),
    };
    let head = format!("{}   {}", title(progress, "   "), progress.classes.join(" → "));
    let head = cut(&head, look.width.saturating_sub(word.chars().count() + 4));
    let gap = look.width.saturating_sub(head.chars().count() + word.chars().count() + 2);
    let mut text = format!("{}{}{} {word}\n", look.bold(&head), " ".repeat(gap), look.mark(mark));
    let _ = writeln!(text, " {}   {}", bar(progress, BAR), cut(&numbers(progress), look.width.saturating_sub(BAR + 4)));
    let mut is_cut = false;
    for machine in seen.answer.machines.iter().take(MOST_MACHINES) {
        let since = machine.since.map(|since| ago(at, since)).unwrap_or_default();
        let line = format!("{}  {} {since}  {}", machine.object.name, machine.state, machine.reason());
        is_cut |= line.chars().count() > look.width - 3;
        let _ = writeln!(text, " {} {}", look.mark(machine.verdict.mark()), cut(&line, look.width - 3));
    }
    if let Some(more) = seen.answer.machines.len().checked_sub(MOST_MACHINES).filter(|more| *more > 0) {
        let _ = writeln!(text, "   and {more} more machines that are not settled");
    }
    if let Some(step) = seen.answer.next.first() {
        let _ = writeln!(text, " next  {}", cut(&format!("{}: {}", step.action, step.reason), look.width - 7));
    } else if let Some(reason) = seen.state.reason().filter(|_| is_cut || seen.answer.machines.is_empty()) {
        for line in wrapped(reason, look.width - 3) {
            let _ = writeln!(text, "   {line}");
        }
    }
    if seen.state.reason().is_some() {
        let object = &seen.answer.object;
        let why = format!("mcm why {} -n {}", object.name, object.namespace);
        let _ = writeln!(text, " more  {}", seen.place.call.addressed(&why, false));
    }
    look.written(&text)
}

fn numbers(progress: &RolloutProgress) -> String {
    let RolloutProgress { new, starting, old, going, total, most, up, least, .. } = progress;
    let parts = [(new, "new"), (starting, "starting"), (old, "old"), (going, "going")];
    let parts = parts.iter().filter(|(number, name)| **number > 0 || *name == "new");
    let parts = parts.map(|(number, name)| format!("{number} {name}")).collect::<Vec<_>>().join("  ");
    format!("{parts}   total {total}/{most}  up {up}/{least}")
}

/// A bar of machines: new, starting, old and going.
pub(in crate::cli) fn bar(progress: &RolloutProgress, width: usize) -> String {
    let size = |number: i32| usize::try_from(number).unwrap_or_default();
    let RolloutProgress { new, starting, old, going, total, wanted, .. } = progress;
    let whole = size(*total.max(wanted));
    if whole == 0 {
        return " ".repeat(width);
    }
    let mut text = String::new();
    let (mut machines, mut cells) = (0, 0);
    for (number, sign) in [(new, '█'), (starting, '▓'), (old, '░'), (going, '▒')] {
        machines += size(*number);
        let end = machines * width / whole;
        text.extend(std::iter::repeat_n(sign, end - cells));
        cells = end;
    }
    text.extend(std::iter::repeat_n(' ', width - cells));
    text
}
