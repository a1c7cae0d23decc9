//! The tree as text.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::branch::TreeBranch;
use mcm_insight::{
    story::{MACHINE, ObjectVerdict, titled},
    terminal::{StatusMark, TerminalLook, ago, cut, cut_inside, wrapped},
};

/// Machines that are alike and shown, before the others are counted.
const SHOWN: usize = 1;
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
    let mut rows = Vec::new();
    for branch in branches {
        push(&mut rows, branch, ["", ""], all, now);
    }
    layout(look, &rows)
}

fn push(rows: &mut Vec<TreeRow>, branch: &TreeBranch, [first, rest]: [&str; 2], all: bool, now: Timestamp) {
    rows.push(TreeRow { name: format!("{first}{}", name_of(branch)), ..row(branch, now) });
    let shown = if all { branch.children.clone() } else { grouped(&branch.children) };
    let mut reason = String::new();
    for (number, child) in shown.iter().enumerate() {
        let is_last = number + 1 == shown.len();
        let (branch_sign, rest_sign) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let mut child = child.clone();
        let why = child.why.clone();
        if !why.is_empty() && why == reason {
            "the same".clone_into(&mut child.why);
        }
        reason = why;
        push(rows, &child, [&format!("{rest}{branch_sign}"), &format!("{rest}{rest_sign}")], all, now);
    }
}

fn name_of(branch: &TreeBranch) -> String {
    let space = if branch.kind == "Pod" { format!("{}/", branch.namespace) } else { String::new() };
    let label = if branch.label.is_empty() { String::new() } else { format!("  {}", branch.label) };
    match branch.kind.as_str() {
        "" => branch.name.clone(),
        kind => format!("{}/{space}{}{label}", titled(branch.api_group, kind), branch.name),
    }
}

fn row(branch: &TreeBranch, now: Timestamp) -> TreeRow {
    let mark = match branch.verdict {
        // Machines that wait are not grouped, so a group of these has pods.
        Some(ObjectVerdict::Waiting) if branch.kind == "Pod" || branch.kind.is_empty() => Some(StatusMark::Refused),
        verdict => verdict.map(ObjectVerdict::mark),
    };
    let since = branch.since.map(|since| ago(now, since)).unwrap_or_default();
    TreeRow { name: String::new(), mark, now: branch.now.clone(), since, why: branch.why.clone() }
}

/// Siblings, with one line for similar ones: settled machines in one state, and pods with one reason.
fn grouped(children: &[TreeBranch]) -> Vec<TreeBranch> {
    let is_alike = |one: &TreeBranch, other: &TreeBranch| {
        let is_settled = one.kind == MACHINE && one.verdict == Some(ObjectVerdict::Settled);
        (is_settled || one.kind == "Pod")
            && (&one.kind, one.api_group) == (&other.kind, other.api_group)
            && (&one.verdict, &one.now, &one.why) == (&other.verdict, &other.now, &other.why)
    };
    let mut shown: Vec<TreeBranch> = Vec::new();
    let mut left = children.to_vec();
    while !left.is_empty() {
        let first = left.remove(0);
        let (alike, others): (Vec<TreeBranch>, Vec<TreeBranch>) =
            left.into_iter().partition(|other| is_alike(&first, other));
        left = others;
        let noun = first.kind.to_lowercase();
        let (now, why) = (first.now.clone(), first.why.clone());
        let (is_machine, verdict) = (first.kind == MACHINE, first.verdict);
        shown.push(first);
        if alike.len() > SHOWN {
            let what = if is_machine { now.clone() } else { format!("{noun}s") };
            let name = format!("{} more {what}", alike.len());
            shown.push(TreeBranch { name, verdict, now, why, ..TreeBranch::default() });
        } else {
            shown.extend(alike);
        }
    }
    shown
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
