//! `mcm events`: the events of a deployment with its sets, machines and Nodes in one list.

mod timeline;

use std::{
    collections::BTreeSet,
    io::{self, Write},
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Args;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, api::ListParams};
use tokio::time::{MissedTickBehavior, interval};

use super::{
    exit::{Answer, Exit},
    flags::value,
    format::Format,
    reading::{self, ReadingOptions, story::Facts},
    terminal::LookOptions,
};
use crate::{plan::Subject, process::ReadOnly};
pub(super) use timeline::{Line, text};

/// Time between two looks at the events.
const LOOK: Duration = Duration::from_secs(2);
/// The most events of a page of a list.
const PAGE: u32 = 500;
/// The namespace of events of Nodes.
const OF_NODES: &str = "default";

/// Options of the command.
#[derive(Args, Debug)]
pub struct EventsOptions {
    /// The object: NAME or KIND/NAME of a MachineDeployment, MachineSet, Machine, MachineClass or Node. Without it, the events of
    /// all machine objects of the namespace are shown
    #[arg(long = "for", value_name = "OBJECT")]
    object: Option<String>,
    /// Show only events that are not older
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    since: Option<Duration>,
    /// Wait for more events
    #[arg(short = 'w', long)]
    watch: bool,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Format: text, or a JSON document in a line for each event
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    look: LookOptions,
}

/// Shows the events of a family of objects.
///
/// # Errors
/// The control cluster cannot be read, or has no such object.
pub async fn run(options: EventsOptions) -> Result<Answer> {
    let cell = options.reading.open().await?;
    let facts = reading::facts(&cell).await?;
    let object = options.object.as_deref().map(|wanted| reading::find(&facts, wanted)).transpose()?;
    let (mut lines, notes) = lines(&cell, &facts, object.as_ref()).await?;
    if let Some(since) = options.since.and_then(|since| SignedDuration::try_from(since).ok()) {
        lines.retain(|line| facts.now.duration_since(line.last) <= since);
    }
    let look = options.look.stdout();
    let render = |lines: &[Line]| match options.output {
        Format::Text => timeline::text(look, lines, facts.now),
        Format::Json => timeline::json_lines(lines),
    };
    let mut text = render(&lines);
    if options.output == Format::Text {
        if lines.is_empty() {
            text = "there are no events\n".to_owned();
        }
        notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    }
    if !options.watch {
        return Ok(Answer { text, exit: Exit::Good });
    }
    print(&text)?;
    let mut shown: BTreeSet<_> = lines.iter().map(Line::occurrence).collect();
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let facts = reading::cached(&cell, Vec::new());
        let (mut more, _) = self::lines(&cell, &facts, object.as_ref()).await?;
        more.retain(|line| shown.insert(line.occurrence()));
        print(&render(&more))?;
    }
}

/// The events of an object with its family, or of everything; and notes about what could not be read.
pub(super) async fn lines(
    cell: &ReadOnly,
    facts: &Facts,
    object: Option<&Subject>,
) -> Result<(Vec<Line>, Vec<String>)> {
    let family = timeline::Members::of(facts, object);
    let mut events = list(&cell.control, &cell.namespace, &ListParams::default()).await?;
    let mut notes = Vec::new();
    if let Some(target) = &cell.target {
        match list(target, OF_NODES, &ListParams::default().fields("involvedObject.kind=Node")).await {
            Ok(of_nodes) => events.extend(of_nodes),
            Err(error) => notes.push(format!("events of Nodes could not be read: {error:#}")),
        }
    }
    let mut lines = timeline::lines(&family, &events);
    lines.extend(timeline::changes(facts, &family));
    lines.sort_by(|one, other| (one.last, &one.name, &one.reason).cmp(&(other.last, &other.name, &other.reason)));
    Ok((lines, notes))
}

async fn list(client: &Client, namespace: &str, params: &ListParams) -> Result<Vec<Event>> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let (mut found, mut params) = (Vec::new(), params.clone().limit(PAGE));
    loop {
        let page = api.list(&params).await.with_context(|| format!("list events of namespace {namespace}"))?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("write to standard output")
}
