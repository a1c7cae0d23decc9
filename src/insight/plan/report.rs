//! The plan as text. Pure.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    answer::{
        Action, BlockerSeverity, ChangedField, FieldEffect, ObjectPlan, Plan, PlanBlocker, PlanSummary, PlanVerdict,
        RolloutBounds, RolloutDuration, RolloutRound, SettledCounts,
    },
    outcome::seconds,
};
use crate::terminal::{StatusMark, TerminalLook, wrapped};
use mcm_rules::plan::counted;

/// Columns of a path, and of old and new values, in 80 columns.
const PATH: usize = 26;
const VALUES: usize = 13;
/// Columns of the longest effect, and of the gaps.
const EFFECT: usize = 36;

/// The plan. With `all`, each machine has a line.
pub fn plan(look: TerminalLook, plan: &Plan, all: bool) -> String {
    let mut text = String::new();
    for object in &plan.objects {
        push_object(look, &mut text, object, all);
        text.push('\n');
    }
    let settled = plan.settled.as_ref().filter(|settled| **settled != SettledCounts::default());
    if let Some(settled) = settled {
        look.section(&mut text, "settled", &counts(settled));
    }
    for note in &plan.notes {
        look.section(&mut text, "note", note);
    }
    if let Some(flags) = &plan.flags {
        look.section(&mut text, "flags", flags);
    }
    if !plan.notes.is_empty() || plan.flags.is_some() || settled.is_some() {
        text.push('\n');
    }
    let PlanSummary { create, delete, in_place, unknown, .. } = plan.summary;
    let unknown = if unknown == 0 { String::new() } else { format!(" {} not judged.", counted(unknown, "object")) };
    let blocking = plan.objects.iter().flat_map(|object| &object.blockers);
    let blocking = blocking.filter(|one| one.severity == BlockerSeverity::Blocks).count();
    let blocked = if blocking == 0 { String::new() } else { format!(" {} in the way.", counted(blocking, "thing")) };
    let sums = format!("Plan: create {create}, delete {delete}, update {in_place} in place.");
    let _ = writeln!(text, "{}{blocked}{unknown} Nothing was written.", look.bold(&sums));
    plain(look, text)
}

/// The objects that are settled, in words.
pub(super) fn counts(settled: &SettledCounts) -> String {
    let SettledCounts { deployments, sets } = *settled;
    let sets = if sets == 0 { String::new() } else { format!(", {}", counted(sets, "MachineSet")) };
    format!("{}{sets}", counted(deployments, "MachineDeployment"))
}

fn push_object(look: TerminalLook, text: &mut String, object: &ObjectPlan, all: bool) {
    let head = format!("{} {}/{}", object.kind, object.namespace, object.name);
    let gap = look.width.saturating_sub(head.chars().count() + object.headline.chars().count()).max(2);
    let headline = look.coloured(&object.headline, colour(object.verdict));
    let _ = writeln!(text, "{}{}{headline}", look.bold(&head), " ".repeat(gap));
    if let Some(reason) = &object.reason {
        look.section(text, "because", reason);
    }
    push_fields(look, text, object);
    if let Some(bounds) = &object.bounds {
        push_bounds(text, bounds);
    }
    push_rounds(text, &object.rounds, end_in_words(object));
    if all {
        push_machines(text, object);
    }
    if let Some(takes) = &object.duration {
        push_time(look, text, takes);
    }
    if !object.blockers.is_empty() {
        text.push_str("\n  in the way\n");
        object.blockers.iter().for_each(|one| push_blocker(look, text, one));
    }
    if !object.remarks.is_empty() {
        text.push('\n');
        for line in object.remarks.iter().flat_map(|remark| wrapped(remark, look.width - 2)) {
            let _ = writeln!(text, "  {line}");
        }
    }
}

/// The end of the last round in words.
pub(super) const fn end_in_words(object: &ObjectPlan) -> &'static str {
    match object.verdict {
        _ if object.settles => "done",
        PlanVerdict::Unknown => "not played any further",
        _ => "stops here",
    }
}

const fn colour(verdict: PlanVerdict) -> &'static str {
    match verdict {
        PlanVerdict::Replaces | PlanVerdict::Deletes | PlanVerdict::Refused => "31",
        PlanVerdict::UpdatesInPlace | PlanVerdict::Unknown => "33",
        PlanVerdict::NoChange | PlanVerdict::ReplacesNothing => "32",
        PlanVerdict::Creates | PlanVerdict::ChangesWithoutARollout | PlanVerdict::Scales => "1",
    }
}

fn push_fields(look: TerminalLook, text: &mut String, object: &ObjectPlan) {
    if object.fields.is_empty() {
        return;
    }
    text.push('\n');
    let width = |of: fn(&ChangedField) -> usize| object.fields.iter().map(of).max().unwrap_or_default();
    let (path, columns) =
        (width(|field| short(&field.path).chars().count()), width(|field| values(field).chars().count()));
    let more = look.width.saturating_sub(80) / 2;
    let (path, columns) = match path + columns + EFFECT <= look.width {
        true => (path, columns),
        false => (path.min(PATH + more), columns.min(VALUES + more)),
    };
    let all = object.machines.len();
    for field in &object.fields {
        let effect = match field.effect {
            FieldEffect::Replace => look.coloured(effect_in_words(field.effect), "31"),
            FieldEffect::InPlace => look.coloured(effect_in_words(field.effect), "33"),
            FieldEffect::Machines => format!("reaches {}, replaces none", counted(all, "machine")),
            FieldEffect::Nodes => format!("reaches {}, replaces none", counted(all, "Node")),
            other => effect_in_words(other).to_owned(),
        };
        let (name, change) = (short(&field.path), values(field));
        let is_long = name.chars().count() > path || change.chars().count() > columns;
        let _ = if is_long {
            writeln!(text, "  {name}  {change}\n  {:path$}  {effect}", "")
        } else {
            writeln!(text, "  {name:path$}  {change:columns$}  {effect}")
        };
    }
}

/// The effect of a field without numbers.
pub(super) const fn effect_in_words(effect: FieldEffect) -> &'static str {
    match effect {
        FieldEffect::Replace => "replaces each machine",
        FieldEffect::InPlace => "updates each machine in place",
        FieldEffect::Scale => "changes the number of machines",
        FieldEffect::Machines => "reaches the machines, replaces none",
        FieldEffect::Nodes => "reaches the Nodes, replaces none",
        FieldEffect::NewMachines => "only VMs created from now on",
        FieldEffect::Nothing => "changes no machine",
        FieldEffect::Same => "the same, written differently",
        FieldEffect::Unknown => "effect not found out",
    }
}

/// The path without the first word, which all fields of a deployment share.
fn short(path: &str) -> &str {
    path.strip_prefix("spec.").unwrap_or(path)
}

fn values(field: &ChangedField) -> String {
    let sign = if field.effect == FieldEffect::Same { "=" } else { "→" };
    format!("{} {sign} {}", value(&field.old), value(&field.new))
}

/// A value in one line.
pub(super) fn value(value: &Value) -> String {
    let text = match value {
        Value::Null => "(none)".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.replace('\n', " "),
    }
}

fn push_bounds(text: &mut String, bounds: &RolloutBounds) {
    let RolloutBounds { max_total, min_available, replicas, max_surge, max_unavailable } = bounds;
    let _ = writeln!(text, "\n  never more than {max_total} machines ({replicas} replicas + {max_surge} maxSurge)");
    let _ = writeln!(
        text,
        "  never fewer than {min_available} available ({replicas} replicas − {max_unavailable} maxUnavailable)"
    );
}

fn push_rounds(text: &mut String, rounds: &[RolloutRound], end: &str) {
    if rounds.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n  {:<36}{:>7}{:>7}{:>7}{:>7}{:>11}", "step", "old", "new", "going", "total", "available");
    for round in rounds {
        let RolloutRound { old, new, going, total, available, .. } = round;
        let what = format!("{:>4}  {}", round.first, acts(round, end));
        let _ = writeln!(text, "  {what:<36}{old:>7}{new:>7}{going:>7}{total:>7}{available:>11}");
    }
}

/// The acts of a round in words.
pub(super) fn acts(round: &RolloutRound, end: &str) -> String {
    let parts = [(round.create, "create"), (round.drain, "drain"), (round.update, "update")];
    let parts: Vec<String> =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{word} {count}")).collect();
    match (parts.is_empty(), round.times) {
        (true, _) => end.to_owned(),
        (false, 1) => parts.join(", "),
        (false, times) => format!("{}, {times} times", parts.join(", ")),
    }
}

fn push_machines(text: &mut String, object: &ObjectPlan) {
    if object.machines.is_empty() {
        return;
    }
    text.push('\n');
    for machine in &object.machines {
        let action = match machine.action {
            Action::Replace => "is replaced",
            Action::Delete => "is deleted",
            Action::Update => "is updated in place",
            Action::Keep => "is kept",
        };
        let step = machine.step.map(|step| format!(" in step {step}")).unwrap_or_default();
        let _ = writeln!(text, "  {} {action}{step}", machine.name);
    }
}

fn push_time(look: TerminalLook, text: &mut String, takes: &RolloutDuration) {
    if let Some(expected) = takes.expected_seconds {
        let about = if expected < 120 { seconds(expected) } else { format!("{} min", (expected + 30) / 60) };
        look.section(text, "takes", &format!("about {about} ({})", takes.basis));
    }
    let label = if takes.expected_seconds.is_some() { "" } else { "takes" };
    let most = seconds(takes.at_most_seconds);
    let told = format!("{most} if each step needs its whole timeout once ({})", takes.timeouts);
    look.section(text, label, &told);
}

fn push_blocker(look: TerminalLook, text: &mut String, blocker: &PlanBlocker) {
    let mark = look.mark(if blocker.severity == BlockerSeverity::Blocks { StatusMark::Bad } else { StatusMark::Look });
    let mut lines = String::new();
    look.section(&mut lines, "", &blocker.text);
    for (number, line) in lines.lines().enumerate() {
        let line = line.trim_start();
        let _ = if number == 0 { writeln!(text, "    {mark} {line}") } else { writeln!(text, "      {line}") };
    }
    if let Some(remedy) = blocker.remedies.first() {
        let arrow = "→";
        let _ = writeln!(text, "      {arrow} {}", remedy.command);
    }
}

/// The text without characters that the terminal may not have.
fn plain(look: TerminalLook, text: String) -> String {
    if look.unicode {
        text
    } else {
        text.replace('→', "->").replace('−', "-").replace('×', "x").replace('…', "...")
    }
}
