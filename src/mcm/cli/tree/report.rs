//! The tree as text.

use std::{borrow::Cow, fmt::Write as _};

use jiff::Timestamp;

use super::branch::TreeBranch;
use mcm_insight::{
    grouping::{CauseNames, FEWEST, by_key, merged, placed, plural, ranked},
    story::{DEPLOYMENT, MACHINE, ObjectVerdict, SET, titled},
    terminal::{StatusMark, TerminalLook, ago, cut, cut_inside, wrapped},
};

/// Machines that are alike and shown, before the others are counted.
const SHOWN: usize = 1;
/// Zones that are named.
const ZONES: usize = 3;
/// The least width of the last column on a terminal.
const LEAST_WHY: usize = 18;

struct TreeRow {
    name: String,
    mark: Option<StatusMark>,
    now: String,
    since: String,
    why: String,
}

/// The trees as a table. Machines that are alike are counted, unless `all` are to be shown.
pub(in crate::cli) fn text(look: TerminalLook, branches: &[TreeBranch], all: bool, now: Timestamp) -> String {
    if branches.is_empty() {
        return String::new();
    }
    let mut names = Vec::new();
    branches.iter().for_each(|branch| push_names(&mut names, branch));
    let names: Option<CauseNames<'_>> = (!all).then(|| names.into_iter().collect());
    let mut rows = Vec::new();
    for branch in siblings(branches, names.as_ref()).iter() {
        push(&mut rows, branch, ["", ""], names.as_ref(), now);
    }
    layout(look, &rows)
}

fn push_names<'a>(names: &mut Vec<&'a str>, branch: &'a TreeBranch) {
    names.push(&branch.name);
    branch.children.iter().for_each(|child| push_names(names, child));
}

/// The siblings that are shown; all of them without names.
fn siblings<'a>(all: &'a [TreeBranch], names: Option<&CauseNames<'_>>) -> Cow<'a, [TreeBranch]> {
    names.map_or(Cow::Borrowed(all), |names| Cow::Owned(grouped(all, names)))
}

fn push(
    rows: &mut Vec<TreeRow>,
    branch: &TreeBranch,
    [first, rest]: [&str; 2],
    names: Option<&CauseNames<'_>>,
    now: Timestamp,
) {
    rows.push(TreeRow { name: format!("{first}{}", name_of(branch)), ..row(branch, now) });
    let shown = siblings(&branch.children, names);
    let mut reason = String::new();
    for (number, child) in shown.iter().enumerate() {
        let is_last = number + 1 == shown.len();
        let (branch_sign, rest_sign) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let mut child = child.clone();
        let why = child.why.clone();
        if let Some(place) = why.strip_prefix(&reason).filter(|_| !reason.is_empty())
            && (place.is_empty() || place.starts_with(" ("))
        {
            child.why = format!("the same{place}");
        }
        reason = why;
        push(rows, &child, [&format!("{rest}{branch_sign}"), &format!("{rest}{rest_sign}")], names, now);
    }
}

fn name_of(branch: &TreeBranch) -> String {
    let space = if branch.kind == "Pod" { format!("{}/", branch.namespace) } else { String::new() };
    let label = if branch.label.is_empty() { String::new() } else { format!("  {}", branch.label) };
    match branch.kind.as_str() {
        _ if branch.alike > 0 => branch.name.clone(),
        kind => format!("{}/{space}{}{label}", titled(branch.api_group, kind), branch.name),
    }
}

fn row(branch: &TreeBranch, now: Timestamp) -> TreeRow {
    let mark = match branch.verdict {
        Some(ObjectVerdict::Waiting) if branch.kind == "Pod" => Some(StatusMark::Refused),
        verdict => verdict.map(ObjectVerdict::mark),
    };
    let since = branch.since.map(|since| ago(now, since)).unwrap_or_default();
    TreeRow { name: String::new(), mark, now: branch.now.clone(), since, why: branch.why.clone() }
}

/// Siblings, with one line for similar ones: settled machines in one state, pods with one reason, and what waits for one cause.
fn grouped(siblings: &[TreeBranch], names: &CauseNames<'_>) -> Vec<TreeBranch> {
    let key = |number: usize| {
        let one = &siblings[number];
        let is_owned = [DEPLOYMENT, SET, MACHINE].contains(&one.kind.as_str());
        let is_settled = one.verdict.is_none_or(|verdict| verdict == ObjectVerdict::Settled);
        let (now, why) = match one.kind.as_str() {
            "Pod" => (one.now.clone(), one.why.clone()),
            MACHINE if is_settled => (one.now.clone(), one.why.clone()),
            _ if is_owned && !is_settled => (names.pattern(&one.now), names.pattern(&one.why)),
            // It is like no other.
            _ => (number.to_string(), String::new()),
        };
        (&one.kind, one.api_group, one.verdict, now, why)
    };
    let mut shown: Vec<TreeBranch> = Vec::new();
    for alike in by_key(0..siblings.len(), key) {
        let alike: Vec<&TreeBranch> = alike.into_iter().map(|number| &siblings[number]).collect();
        let Some((first, others)) = alike.split_first() else { continue };
        let is_waiting = first.kind != "Pod" && first.verdict != Some(ObjectVerdict::Settled);
        let most = if is_waiting { FEWEST - 2 } else { SHOWN };
        if others.len() <= most {
            shown.extend(alike.into_iter().cloned());
        } else {
            shown.push((*first).clone());
            shown.push(branch_of_many(first, others));
        }
    }
    shown
}

/// One line for machines, pods or others that are like the first.
fn branch_of_many(first: &TreeBranch, others: &[&TreeBranch]) -> TreeBranch {
    let what = match first.kind.as_str() {
        "Pod" => "pods".to_owned(),
        kind => plural(&titled(first.api_group, kind)),
    };
    let zones = ranked(others.iter().filter_map(|one| one.zone.as_deref()));
    let zones: Vec<String> = zones.iter().take(ZONES).map(|(zone, count)| format!("{zone} {count}")).collect();
    let place = if zones.is_empty() { String::new() } else { format!("zones: {}", zones.join(", ")) };
    let is_waiting = first.kind != "Pod" && first.verdict != Some(ObjectVerdict::Settled);
    TreeBranch {
        kind: first.kind.clone(),
        name: format!("{} more {what}", others.len()),
        alike: others.len(),
        verdict: first.verdict,
        now: merged(others.iter().map(|one| one.now.as_str())),
        since: others.iter().filter_map(|one| one.since).min().filter(|_| is_waiting),
        why: placed(&merged(others.iter().map(|one| one.why.as_str())), &place),
        ..TreeBranch::default()
    }
}

/// Reasons that the table has no room for, each with the first object that has it.
fn push_reasons<'a>(look: TerminalLook, text: &mut String, rows: impl Iterator<Item = &'a TreeRow>) {
    let rows: Vec<&TreeRow> = rows.collect();
    // A deployment is blocked for the reason of a machine below it.
    let is_of_other = |row: &TreeRow| {
        let cause = row.why.split_once(" waits for ").map(|(_, cause)| cause);
        cause.is_some_and(|cause| rows.iter().any(|other| other.why.starts_with(cause)))
    };
    let mut shown: Vec<(&str, &str)> = Vec::new();
    for row in rows.iter().filter(|row| !is_of_other(row)) {
        if !shown.iter().any(|(_, why)| *why == row.why) {
            shown.push((row.name.trim_start_matches(['│', '├', '└', '─', ' ']), &row.why));
        }
    }
    for (name, why) in shown {
        let name = name.split("  ").next().unwrap_or_default();
        text.push('\n');
        for line in wrapped(&format!("{name}: {why}"), look.width) {
            let _ = writeln!(text, "{line}");
        }
    }
}

/// Columns as wide as their texts; on a terminal the last, and then the first, give way.
fn layout(look: TerminalLook, rows: &[TreeRow]) -> String {
    let width = |text: fn(&TreeRow) -> &String, head: &str| {
        rows.iter().map(|row| text(row).chars().count()).max().unwrap_or_default().max(head.len())
    };
    let (mut name, now, since) =
        (width(|row| &row.name, "NAME"), width(|row| &row.now, "NOW") + 2, width(|row| &row.since, "SINCE"));
    let why = width(|row| &row.why, "WHY");
    let mut why_width = why;
    if look.is_terminal {
        let fixed = now + since + 6;
        let left = look.width.saturating_sub(fixed);
        why_width = why.min(left.saturating_sub(name).max(LEAST_WHY));
        name = name.min(left.saturating_sub(why_width));
    }
    let mut text = String::new();
    let _ = writeln!(text, "{:<name$}  {:<now$}  {:<since$}  WHY", "NAME", "NOW", "SINCE");
    for row in rows {
        let mark = row.mark.map_or_else(|| " ".to_owned(), |mark| look.mark(mark));
        let state = format!("{mark} {:<width$}", row.now, width = now - 2);
        let why = cut(&row.why, why_width);
        let line = format!("{:<name$}  {state}  {:<since$}  {why}", cut_inside(&row.name, name), row.since);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let is_cut = |row: &&TreeRow| row.why.chars().count() > why_width;
    push_reasons(look, &mut text, rows.iter().filter(is_cut));
    look.written(&text)
}

#[cfg(test)]
mod tests;
