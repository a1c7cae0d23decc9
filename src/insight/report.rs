//! The answer as text. Pure.

use jiff::Timestamp;

use crate::{
    grouping::{CauseGroup, by_cause, placed},
    place::CallTarget,
    story::{CLASS, ExplainedWait, ManagerLease, NamespaceFacts, ObjectAnswer, ObjectRemedy, ObjectVerdict},
    table::table,
    terminal::{StatusMark, TerminalLook, ago, short},
};
use mcm_rules::plan::{guide::WaitEnd, shell::CallFlags};

/// Columns of a mark and the space behind it.
const MARK: usize = 2;
/// Machines that are shown with their waits.
const MOST_MACHINES: usize = 10;
/// Steps that are shown.
const MOST_STEPS: usize = 5;

impl ObjectVerdict {
    /// As users read it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Progressing => "progressing",
            Self::Waiting => "WAITING",
            Self::Unknown => "UNKNOWN",
            Self::Blocked => "BLOCKED",
        }
    }

    /// The mark beside the word.
    pub const fn mark(self) -> StatusMark {
        match self {
            Self::Settled => StatusMark::Good,
            Self::Progressing => StatusMark::Busy,
            Self::Waiting => StatusMark::Look,
            Self::Unknown => StatusMark::Refused,
            Self::Blocked => StatusMark::Bad,
        }
    }
}

/// The answer for one object. `manager` is the manager whose controllers act on it.
pub fn one(
    look: TerminalLook,
    answer: &ObjectAnswer,
    manager: Option<&ManagerLease>,
    notes: &[String],
    facts: &NamespaceFacts,
) -> String {
    let now = facts.now;
    let mut text = head(look, answer, now);
    let culprit = answer.culprit().map(|culprit| match culprit.waits.first() {
        Some(wait) => format!("{} waits for {}", culprit.object.name, wait.text),
        None => format!("{} is {}: {}", culprit.object.name, culprit.state, culprit.reason()),
    });
    for (number, wait) in answer.waits.iter().enumerate() {
        text.push('\n');
        push_wait(look, &mut text, wait, now);
        let is_last = answer.waits.get(number + 1).is_none_or(|next| next.kind != wait.kind);
        match culprit.as_ref().filter(|_| wait.end == WaitEnd::Controllers) {
            _ if !is_last => {}
            Some(culprit) => look.section(&mut text, "because", culprit),
            None => push_meaning(look, &mut text, wait),
        }
    }
    if let Some(failed) = &answer.failed {
        look.section(&mut text, "failed", failed);
    }
    if let Some(tried) = &answer.tried {
        look.section(&mut text, "tried", tried);
    }
    for (number, step) in answer.next.iter().take(MOST_STEPS).enumerate() {
        let label = if number == 0 { "next" } else { "" };
        look.section(&mut text, label, &format!("{}: {}", step.action, step.reason));
    }
    if let Some(more) = answer.next.len().checked_sub(MOST_STEPS).filter(|more| *more > 0) {
        look.section(&mut text, "", &format!("and {more} more steps"));
    }
    push_machines(look, &mut text, answer, now);
    push_links(look, &mut text, answer);
    for (number, line) in answer.chain.up.iter().enumerate() {
        if number == 0 {
            text.push('\n');
        }
        look.section(&mut text, if number == 0 { "wanted by" } else { "" }, line);
    }
    // The chain of an object of Cluster API has its owners.
    for (number, owner) in answer.owners.iter().filter(|_| answer.links.is_empty()).enumerate() {
        look.section(&mut text, if number == 0 { "owned by" } else { "" }, &format!("{} {}", owner.kind, owner.name));
    }
    if !answer.ruled_out.is_empty() {
        let ruled_out: Vec<&str> = answer.ruled_out.iter().map(|one| one.text.as_str()).collect();
        look.section(&mut text, "ruled out", &ruled_out.join(", "));
    }
    push_remedies(look, &mut text, answer, &facts.place.call);
    text.push('\n');
    if let Some(manager) = manager.filter(|_| answer.object.kind != CLASS) {
        look.section(&mut text, "manager", &manager.state(now));
    }
    push_notes(look, &mut text, notes);
    text
}

/// Everything that is not settled in a namespace.
pub fn all(look: TerminalLook, answers: &[ObjectAnswer], facts: &NamespaceFacts, notes: &[String]) -> String {
    let (now, namespace) = (facts.now, &facts.namespace);
    let mut text = String::new();
    if facts.is_empty() && answers.is_empty() {
        text = empty(&facts.place, namespace);
    } else if answers.is_empty() {
        text = match facts.unread_kinds().as_slice() {
            [] => format!("nothing waits in namespace {namespace}\n"),
            unread => {
                let unread = unread.join(", ");
                format!(
                    "nothing that was read waits in namespace {namespace}; {unread} could not be read, so the rest is unknown\n"
                )
            }
        };
    } else {
        let row = |group: CauseGroup<'_>| {
            let since = group.members.iter().filter_map(|one| one.since).min();
            let since = since.map(|since| ago(now, since)).unwrap_or_default();
            let state = group.members.first().map(|one| one.verdict.word()).unwrap_or_default();
            let reason = placed(&group.reason, &group.place(facts));
            [look.written(&group.title()), state.to_owned(), since, look.written(&reason)]
        };
        let rows = by_cause(answers).into_iter().map(row);
        text.push_str(&table(&["object", "state", "since", "waits for"], rows));
        text.push('\n');
    }
    match facts.managers.as_slice() {
        [one, other] if one.is_alive(now) && one.holder == other.holder => {
            let state = format!("{} holds both Leases, and renews them{}", one.holder, one.park_clause());
            look.section(&mut text, "manager", &state);
        }
        managers => {
            // The provider for Cluster API needs none of these Leases.
            let is_of_provider = facts.is_of_provider_alone() || facts.is_empty() && !answers.is_empty();
            let shown = managers.iter().filter(|manager| manager.exists || !is_of_provider);
            shown.for_each(|manager| look.section(&mut text, "manager", &manager.state(now)));
        }
    }
    push_notes(look, &mut text, notes);
    text
}

/// Notes. One that ends with a command is in one line, so that the command can be copied.
fn push_notes(look: TerminalLook, text: &mut String, notes: &[String]) {
    for note in notes {
        match note.contains(": kubectl ") {
            true => look.line(text, "note", note),
            false => look.section(text, "note", note),
        }
    }
}

/// A namespace without objects, most often because it is another one.
pub fn empty(place: &CallTarget, namespace: &str) -> String {
    let list = place.call.addressed("kubectl get machinedeployments.machine.sapcloud.io -A", false);
    format!(
        "there are no machines, and no deployments and classes of machines, in namespace {namespace}\n\
         hint: name another with -n; {list} lists all\n"
    )
}

fn head(look: TerminalLook, answer: &ObjectAnswer, now: Timestamp) -> String {
    let object = &answer.object;
    let head = format!("{} {}/{} is {}", answer.title(), object.namespace, object.name, answer.verdict.word());
    let since = answer.since.map(|since| ago(now, since)).unwrap_or_default();
    let gap = look.width.saturating_sub(MARK + head.len() + since.len()).max(2);
    let (mark, head) = (look.mark(answer.verdict.mark()), look.bold(&head));
    let mut text = format!("{mark} {head}{}{since}", " ".repeat(gap)).trim_end().to_owned();
    text.push('\n');
    if !answer.state.is_empty() {
        look.section(&mut text, "state", &answer.state);
    }
    text
}

fn push_wait(look: TerminalLook, text: &mut String, wait: &ExplainedWait, now: Timestamp) {
    look.section(text, "waits for", &wait.text);
    if let Some(since) = wait.since {
        let plans = match wait.plans {
            None => String::new(),
            Some(1) => ", planned once".to_owned(),
            Some(plans) => format!(", planned {plans} times"),
        };
        look.section(text, "since", &format!("{since:.0}, for {}{plans}", ago(now, since)));
    }
    if let Some(next) = wait.next_attempt.filter(|next| *next > now) {
        look.section(text, "next look", &format!("{next:.0}, in {}", ago(next, now)));
    }
    if let Some(forced) = wait.forced_at {
        let left = if forced > now { format!(", in {}", ago(forced, now)) } else { String::new() };
        look.section(text, "forced at", &format!("{forced:.0}{left}: the pods that are left are deleted"));
    }
}

fn push_meaning(look: TerminalLook, text: &mut String, wait: &ExplainedWait) {
    look.section(text, "because", wait.meaning);
    look.section(text, "", &format!("({:?}: {})", wait.kind, wait.end.text()));
}

fn push_machines(look: TerminalLook, text: &mut String, answer: &ObjectAnswer, now: Timestamp) {
    for (number, set) in answer.sets.iter().enumerate() {
        if number == 0 {
            text.push('\n');
        }
        let line = format!("{} waits for {}", set.object.name, set.reason());
        look.section(text, if number == 0 { "sets" } else { "" }, &line);
    }
    let (mut number, mut shown) = (0_usize, 0_usize);
    for group in by_cause(&answer.machines).into_iter().take(MOST_MACHINES) {
        let Some(machine) = group.members.first() else { continue };
        if number == 0 && answer.sets.is_empty() {
            text.push('\n');
        }
        let since = group.members.iter().filter_map(|one| one.since).min();
        let since = since.map(|since| format!(" for {}", ago(now, since))).unwrap_or_default();
        let line = match (group.members.len(), machine.waits.is_empty()) {
            (1, true) if group.reason == machine.state => format!("{}: {}{since}", machine.object.name, machine.state),
            (1, true) => format!("{}: {}{since}: {}", machine.object.name, machine.state, group.reason),
            (1, false) => format!("{}: {}{since}, waits for {}", machine.object.name, machine.state, group.reason),
            (_, true) => format!("{}: {}", group.title(), group.reason),
            (_, false) => format!("{}: wait for {}", group.title(), group.reason),
        };
        look.section(text, if number == 0 { "machines" } else { "" }, &look.written(&line));
        (number, shown) = (number.saturating_add(1), shown.saturating_add(group.members.len()));
    }
    if let Some(more) = answer.machines.len().checked_sub(shown).filter(|more| *more > 0) {
        look.section(text, "", &format!("and {more} more machines that are not settled"));
    }
}

/// The objects above and below one of Cluster API, and its conditions.
fn push_links(look: TerminalLook, text: &mut String, answer: &ObjectAnswer) {
    if !answer.links.is_empty() {
        text.push('\n');
    }
    for (number, link) in answer.links.iter().enumerate() {
        // The object itself waits for what is above.
        let is_own =
            link.name == answer.object.name && link.kind == answer.object.kind && link.api_group == answer.api_group;
        let waits = link.waits.as_ref().filter(|_| !is_own);
        let waits = waits.map(|waits| format!("; waits for {waits}")).unwrap_or_default();
        let label = if number == 0 { "chain" } else { "" };
        let mark = look.mark(link.verdict.mark());
        look.marked(text, label, &mark, &format!("{}: {}{waits}", link.title(), link.state));
    }
    for (number, condition) in answer.conditions.iter().enumerate() {
        let label = if number == 0 { "conditions" } else { "" };
        let version = if condition.version == "v1beta2" { String::new() } else { format!(" ({})", condition.version) };
        let words: Vec<&str> = condition.message.split_whitespace().collect();
        let message = if words.is_empty() { String::new() } else { format!(": {}", short(&words.join(" "))) };
        let head = format!("{}={} {}{version}{message}", condition.type_, condition.status, condition.reason);
        look.section(text, label, &head);
    }
}

fn push_remedies(look: TerminalLook, text: &mut String, answer: &ObjectAnswer, call: &CallFlags) {
    let remedies = answer.remedies();
    let more = answer.culprit();
    let more = more.map(|culprit| format!("mcm why {} -n {}", culprit.argument(), culprit.object.namespace));
    let more = more.map(|command| call.addressed(&command, false));
    for (number, line) in remedies.iter().map(|remedy| remedy.text.as_str()).chain(more.as_deref()).enumerate() {
        if number == 0 {
            text.push('\n');
        }
        let label = if number == 0 { "you can" } else { "" };
        // A command is in one line, so that it can be copied.
        match remedies.get(number).is_none_or(|remedy| remedy.is_command()) || line.contains(": kubectl ") {
            true => look.line(text, label, line),
            false => look.section(text, label, line),
        }
        match remedies.get(number) {
            Some(ObjectRemedy { note: "", danger, .. }) => look.section(text, "", &format!("({})", danger.text())),
            Some(ObjectRemedy { note, danger, .. }) => look.section(text, "", &format!("({}: {note})", danger.text())),
            None => look.section(text, "", "(safe: says more about it)"),
        }
    }
}
