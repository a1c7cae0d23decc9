//! The plan as Markdown, for a comment of a pull request. Pure.

use std::fmt::Write as _;

use super::{
    answer::{
        BlockerSeverity, ChangedField, ObjectPlan, Plan, PlanSummary, RolloutBounds, RolloutRound, SettledCounts,
    },
    outcome::seconds,
    report::{acts, counts, effect_in_words, end_in_words, value},
};

/// The plan of a cluster, below a title.
pub fn plan(title: &str, plan: &Plan) -> String {
    let PlanSummary { create, delete, in_place, unknown, .. } = plan.summary;
    let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} not judged") };
    let mut text = format!(
        "### mcm plan: create {create}, delete {delete}, update {in_place} in place{unknown}\n\n{}, at {}. Nothing was \
         written.\n",
        plain(title),
        plan.at
    );
    plan.objects.iter().for_each(|object| push_object(&mut text, object));
    if let Some(settled) = plan.settled.as_ref().filter(|settled| **settled != SettledCounts::default()) {
        let _ = writeln!(text, "\nSettled: {}.", counts(settled));
    }
    for note in plan.notes.iter().chain(&plan.flags) {
        let _ = writeln!(text, "\n> {}", plain(note));
    }
    text
}

fn push_object(text: &mut String, object: &ObjectPlan) {
    let _ = writeln!(
        text,
        "\n#### {} {}/{}: {}",
        plain(&object.kind),
        plain(&object.namespace),
        plain(&object.name),
        plain(&object.headline)
    );
    for line in object.reason.iter().chain(&object.remarks) {
        let _ = writeln!(text, "\n{}", plain(line));
    }
    push_blockers(text, object);
    push_fields(text, &object.fields);
    if let Some(RolloutBounds { max_total, min_available, .. }) = object.bounds {
        let _ = writeln!(text, "\nNever more than {max_total} machines, never fewer than {min_available} available.");
    }
    if let Some(duration) = &object.duration {
        let about = duration.expected_seconds.map(|expected| format!("about {}, ", seconds(expected)));
        let most = seconds(duration.at_most_seconds);
        let about = about.unwrap_or_default();
        let _ = writeln!(text, "\nTakes {about}{most} if each step needs its whole timeout once.");
    }
    push_rounds(text, object);
}

fn push_blockers(text: &mut String, object: &ObjectPlan) {
    if object.blockers.is_empty() {
        return;
    }
    text.push_str("\n**In the way**\n\n");
    for blocker in &object.blockers {
        let mark = if blocker.severity == BlockerSeverity::Blocks { "✖" } else { "⚠" };
        let _ = writeln!(text, "- {mark} {}", plain(&blocker.text));
        if let Some(remedy) = blocker.remedies.first() {
            let _ = writeln!(text, "  → {}", code(&remedy.command));
        }
    }
}

fn push_fields(text: &mut String, fields: &[ChangedField]) {
    if fields.is_empty() {
        return;
    }
    text.push_str("\n| Field | Before | After | Effect |\n|---|---|---|---|\n");
    for field in fields {
        let cells = [code(&field.path), code(&value(&field.old)), code(&value(&field.new))]
            .map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(text, "| {} | {} |", cells.join(" | "), effect_in_words(field.effect));
    }
}

fn push_rounds(text: &mut String, object: &ObjectPlan) {
    if object.rounds.is_empty() {
        return;
    }
    let count = object.rounds.last().map(|round| round.first).unwrap_or_default();
    let _ = writeln!(text, "\n<details><summary>{count} steps</summary>\n");
    text.push_str("| Step | | Old | New | Going | Total | Available |\n|---|---|---|---|---|---|---|\n");
    for round in &object.rounds {
        let RolloutRound { first, old, new, going, total, available, .. } = round;
        let what = acts(round, end_in_words(object));
        let _ = writeln!(text, "| {first} | {what} | {old} | {new} | {going} | {total} | {available} |");
    }
    text.push_str("\n</details>\n");
}

/// A text of an object without Markdown and HTML.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for sign in text.chars() {
        match sign {
            '<' => plain.push_str("&lt;"),
            '&' => plain.push_str("&amp;"),
            '\n' | '\r' => plain.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '@' | '!' => plain.extend(['\\', sign]),
            _ => plain.push(sign),
        }
    }
    plain
}

/// A value between backticks, more of them than any run within it.
fn code(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    let longest = text.split(|sign| sign != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest + 1);
    let gap = if text.starts_with('`') || text.ends_with('`') || text.is_empty() { " " } else { "" };
    format!("{fence}{gap}{text}{gap}{fence}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a", "`a`")]
    #[case("a `b` c", "``a `b` c``")]
    #[case("`a", "`` `a ``")]
    #[case("", "`  `")]
    #[case("a\nb", "`a b`")]
    fn code_contains_any_text(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(code(text), expected);
    }

    #[test]
    fn texts_of_objects_are_no_markdown() {
        assert_eq!(plain("<img src=x> [a](b) @team\n# *b*"), "&lt;img src=x> \\[a\\](b) \\@team \\# \\*b\\*");
    }
}
