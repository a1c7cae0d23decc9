//! The page as HTML. Pure.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{
    html::{HtmlText, InQuery},
    view::{ChosenDeployment, DashboardRow, DashboardView, MachineBar, ServerSilence},
};
use crate::cli::events::EventLine;
use mcm_insight::{
    story::{ObjectAnswer, ObjectVerdict},
    terminal::ago,
};
use mcm_rules::plan::guide::RemedyDanger;

/// Seconds after which a browser without script loads the page again.
const REFRESH: u32 = 5;

/// The page.
pub(super) fn page(view: &DashboardView<'_>) -> String {
    let mut main = String::new();
    push_list(&mut main, view);
    main.push_str("<section class=\"detail\">");
    match &view.chosen {
        Some(chosen) => push_chosen(&mut main, chosen, view.now),
        None => main.push_str("<h1>There is no MachineDeployment</h1>"),
    }
    push_ownerless(&mut main, view);
    main.push_str("</section>");
    let cluster = match view.cluster {
        "" => String::new(),
        cluster => format!("<span>cluster <b>{}</b></span>", HtmlText(cluster)),
    };
    let mut header = format!(
        "<header><b class=\"brand\">mcm</b>{cluster}<span>namespace <b>{}</b></span><span class=\"muted\">read-only, as of \
         <time datetime=\"{:.0}\">{}</time></span>",
        HtmlText(view.namespace),
        view.now,
        view.now.strftime("%H:%M:%S UTC")
    );
    if !(view.managers.is_empty() && view.notes.is_empty()) {
        header.push_str("<ul class=\"facts\">");
        for manager in view.managers {
            let _ = write!(header, "<li>{}</li>", HtmlText(&manager.state(view.now)));
        }
        for note in view.notes {
            let _ = write!(header, "<li class=\"note\">{}</li>", HtmlText(note));
        }
        header.push_str("</ul>");
    }
    header.push_str("</header>");
    let silence = view.silence.as_ref().map(silence).unwrap_or_default();
    let chosen = view.chosen.as_ref().map(|chosen| chosen.answer.object.name.as_str());
    document(&format!("mcm · {}", view.namespace), &format!("{silence}{header}<main>{main}</main>"), chosen)
}

/// The control cluster does not answer.
fn silence(silence: &ServerSilence) -> String {
    let ServerSilence { since, error } = silence;
    format!(
        "<p class=\"silence\" role=\"alert\">no answer of the control cluster since <time datetime=\"{since:.0}\">{}</time>: this is its \
         last state ({})</p>",
        since.strftime("%H:%M:%S UTC"),
        HtmlText(error)
    )
}

/// A page with an error text alone.
pub(super) fn failure(text: &str) -> String {
    let body = format!(
        "<main><section class=\"detail\"><h1>Not shown</h1><p>{}</p><p><a href=\"./\">All deployments</a></p></section></main>",
        HtmlText(text)
    );
    document("mcm", &body, None)
}

/// A document. A page that is loaded again is that of the same deployment, whichever is the worst then.
fn document(title: &str, body: &str, chosen: Option<&str>) -> String {
    let again = chosen.map(|name| format!("; url=?deployment={}", InQuery(name))).unwrap_or_default();
    let query = chosen.map(|name| format!(" data-query=\"?deployment={}\"", InQuery(name))).unwrap_or_default();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <link rel=\"stylesheet\" href=\"style.css\">\
         <noscript><meta http-equiv=\"refresh\" content=\"{REFRESH}{again}\"></noscript>\
         <script src=\"script.js\" defer></script></head><body{query}>{body}</body></html>\n",
        HtmlText(title)
    )
}

fn push_list(html: &mut String, view: &DashboardView<'_>) {
    let number = view.deployments.len();
    let _ = write!(html, "<nav aria-label=\"Deployments\"><h2>Deployments · {number}</h2><ul>");
    for row in &view.deployments {
        let is_chosen = view.chosen.as_ref().is_some_and(|chosen| chosen.answer.object.name == row.name);
        push_row(html, row, is_chosen, view.now);
    }
    html.push_str("</ul></nav>");
}

fn push_row(html: &mut String, row: &DashboardRow, is_chosen: bool, now: Timestamp) {
    let current = if is_chosen { " aria-current=\"page\"" } else { "" };
    let name = HtmlText(&row.name);
    let _ =
        write!(html, "<li><a href=\"?deployment={}\"{current}><span class=\"row\"><b>{name}</b>", InQuery(&row.name));
    push_pill(html, row.verdict, row.since, now);
    html.push_str("</span>");
    push_bar(html, row.bar);
    let _ = write!(
        html,
        "<span class=\"row muted\"><span>{} of {} new</span><span>{} available</span></span></a></li>",
        row.bar.new, row.bar.wanted, row.bar.available
    );
}

/// Words of a verdict and the class of its colour.
const fn class_of(verdict: ObjectVerdict) -> &'static str {
    match verdict {
        ObjectVerdict::Settled => "good",
        ObjectVerdict::Progressing => "busy",
        ObjectVerdict::Waiting => "wait",
        ObjectVerdict::Unknown | ObjectVerdict::Blocked => "bad",
    }
}

fn push_pill(html: &mut String, verdict: ObjectVerdict, since: Option<Timestamp>, now: Timestamp) {
    let since = since.filter(|_| verdict != ObjectVerdict::Settled).map(|since| format!(" {}", ago(now, since)));
    let word = verdict.word().to_lowercase();
    let _ = write!(html, "<span class=\"pill {}\">{word}{}</span>", class_of(verdict), since.unwrap_or_default());
}

/// The machines as one line. Its numbers stand beside it as text.
fn push_bar(html: &mut String, bar: MachineBar) {
    let total = (bar.new + bar.starting + bar.old + bar.going).max(bar.wanted).max(1);
    let _ = write!(
        html,
        "<svg class=\"bar\" viewBox=\"0 0 {total} 1\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{} new, {} starting, {} old, {} being deleted, {} wanted\">",
        bar.new, bar.starting, bar.old, bar.going, bar.wanted
    );
    let mut x = 0;
    for (class, width) in [("new", bar.new), ("starting", bar.starting), ("old", bar.old), ("going", bar.going)] {
        if width > 0 {
            let _ = write!(html, "<rect class=\"{class}\" x=\"{x}\" y=\"0\" width=\"{width}\" height=\"1\"/>");
        }
        x += width;
    }
    html.push_str("</svg>");
}

fn push_chosen(html: &mut String, chosen: &ChosenDeployment<'_>, now: Timestamp) {
    let ChosenDeployment { answer, bar, .. } = chosen;
    let _ = write!(html, "<div class=\"card\"><div class=\"row\"><h1>{}</h1>", HtmlText(&answer.object.name));
    let _ = write!(html, "<span class=\"muted\">{}</span></div>", HtmlText(&chosen.strategy));
    push_bar(html, *bar);
    html.push_str("<ul class=\"numbers\">");
    for (class, number, word) in [
        ("new", bar.new, "new"),
        ("starting", bar.starting, "starting"),
        ("old", bar.old, "old"),
        ("going", bar.going, "being deleted"),
        ("available", bar.available, "available"),
        ("wanted", bar.wanted, "wanted"),
    ] {
        let _ = write!(html, "<li class=\"{class}\"><b>{number}</b> {word}</li>");
    }
    html.push_str("</ul></div>");
    push_why(html, answer, now);
    push_machines(html, &chosen.machines, now);
    push_time_line(html, &chosen.events, now);
}

fn push_why(html: &mut String, answer: &ObjectAnswer, now: Timestamp) {
    let title = match answer.verdict {
        ObjectVerdict::Settled => "It is settled",
        ObjectVerdict::Progressing => "It goes on",
        ObjectVerdict::Waiting | ObjectVerdict::Unknown | ObjectVerdict::Blocked => "Why it does not go on",
    };
    let _ = write!(html, "<div class=\"card why {}\"><div class=\"row\"><h2>{title}</h2>", class_of(answer.verdict));
    push_pill(html, answer.verdict, answer.since, now);
    let _ = write!(html, "</div><p>{}</p>", HtmlText(&answer.state));
    push_chains(html, answer);
    push_waits(html, answer, now);
    for step in answer.next.iter().take(5) {
        let _ = write!(html, "<p>next: {}: {}</p>", HtmlText(&step.action), HtmlText(&step.reason));
    }
    push_remedies(html, answer);
    html.push_str("</div>");
}

/// From the deployment to the cause, for the worst machines.
fn push_chains(html: &mut String, answer: &ObjectAnswer) {
    let below = answer.sets.iter().chain(&answer.machines);
    let worst = below.filter(|one| !one.waits.is_empty() || one.failed.is_some()).take(3);
    for machine in worst {
        let _ = write!(
            html,
            "<ol class=\"chain\"><li>{}</li><li>{} is {}</li><li class=\"end\">{}</li></ol>",
            HtmlText(&answer.object.name),
            HtmlText(&machine.object.name),
            HtmlText(&machine.state),
            HtmlText(&reason(machine))
        );
    }
}

fn push_waits(html: &mut String, answer: &ObjectAnswer, now: Timestamp) {
    for (number, wait) in answer.waits.iter().enumerate() {
        let forced = wait.forced_at.filter(|at| *at > now);
        let forced = forced.map(|at| format!(", forced in {}", ago(at, now))).unwrap_or_default();
        let _ = write!(html, "<p class=\"wait\">waits for <b>{}</b>{}</p>", HtmlText(&wait.text), HtmlText(&forced));
        let is_last = answer.waits.get(number + 1).is_none_or(|next| next.meaning != wait.meaning);
        if is_last {
            let _ = write!(html, "<p class=\"muted\">{}</p>", HtmlText(wait.meaning));
        }
    }
    if let Some(failed) = &answer.failed {
        let _ = write!(html, "<p><b>failed:</b> {}</p>", HtmlText(failed));
    }
}

/// The worst wait, failure or next step.
fn reason(answer: &ObjectAnswer) -> String {
    let wait = answer.waits.first().map(|wait| format!("waits for {}", wait.text));
    let step = answer.next.first().map(|step| format!("next: {}", step.action));
    wait.or_else(|| answer.failed.clone()).or(step).unwrap_or_default()
}

fn push_remedies(html: &mut String, answer: &ObjectAnswer) {
    let remedies = answer.remedies();
    if remedies.is_empty() {
        return;
    }
    html.push_str("<h3>You can</h3><ul class=\"remedies\">");
    for remedy in remedies {
        let class = if remedy.danger == RemedyDanger::Safe { "good" } else { "bad" };
        let _ = write!(html, "<li><span class=\"pill {class}\">{}</span> ", HtmlText(remedy.danger.text()));
        match remedy.is_command() {
            true => push_command(html, &remedy.text),
            false => {
                let _ = write!(html, "<span>{}</span>", HtmlText(&remedy.text));
            }
        }
        let _ = write!(html, " <span class=\"muted\">{}</span></li>", HtmlText(remedy.note));
    }
    html.push_str("</ul>");
}

/// A command with a button, which needs the script.
fn push_command(html: &mut String, command: &str) {
    let command = HtmlText(command);
    let _ = write!(
        html,
        "<span class=\"command\"><code>{command}</code> <button type=\"button\" class=\"copy\" aria-label=\"Copy {command}\">Copy</button></span>"
    );
}

fn push_machines(html: &mut String, machines: &[ObjectAnswer], now: Timestamp) {
    let _ = write!(html, "<div class=\"card\"><h2>Machines · {}</h2>", machines.len());
    push_tiles(html, machines, now);
    html.push_str("</div>");
}

fn push_tiles(html: &mut String, machines: &[ObjectAnswer], now: Timestamp) {
    html.push_str("<ul class=\"tiles\">");
    for machine in machines {
        let since = machine.since.map(|since| format!(" {}", ago(now, since))).unwrap_or_default();
        let _ = write!(
            html,
            "<li class=\"tile {}\"><b>{}</b><span>{}{since}, {}</span><span class=\"muted\">{}</span></li>",
            class_of(machine.verdict),
            HtmlText(&machine.object.name),
            HtmlText(&machine.state),
            machine.verdict.word().to_lowercase(),
            HtmlText(&reason(machine))
        );
    }
    html.push_str("</ul>");
}

/// Machines and sets without an owner, and what managers report about VMs without a machine.
fn push_ownerless(html: &mut String, view: &DashboardView<'_>) {
    if view.ownerless.is_empty() && view.orphans.is_empty() {
        return;
    }
    html.push_str("<div class=\"card\"><h2>Without an owner</h2>");
    push_tiles(html, &view.ownerless, view.now);
    if !view.orphans.is_empty() {
        html.push_str("<h3>VMs without a machine</h3>");
        push_events(html, &view.orphans, view.now);
        push_command(html, &view.vms);
    }
    html.push_str("</div>");
}

fn push_time_line(html: &mut String, events: &[&EventLine], now: Timestamp) {
    html.push_str("<div class=\"card\"><h2>What happened</h2>");
    push_events(html, events, now);
    html.push_str("</div>");
}

fn push_events(html: &mut String, events: &[&EventLine], now: Timestamp) {
    html.push_str("<table><thead><tr><th>Ago</th><th>Object</th><th>Reason</th><th>Message</th></tr></thead><tbody>");
    for one in events {
        let class = if one.is_warning { " class=\"warning\"" } else { "" };
        let count = if one.count > 1 { format!(" ×{}", one.count) } else { String::new() };
        let _ = write!(
            html,
            "<tr{class}><td><time datetime=\"{:.0}\">{}</time></td><td>{}</td><td>{}</td><td>{}{count}</td></tr>",
            one.last,
            ago(now, one.last),
            HtmlText(&one.name),
            HtmlText(&one.reason),
            HtmlText(&one.message)
        );
    }
    html.push_str("</tbody></table>");
}

#[cfg(test)]
mod tests;
