//! `mcm events`: the events of a deployment with its sets, machines and Nodes in one list.

mod timeline;

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;
use clap::Args;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use tokio::time::{MissedTickBehavior, interval};

use super::{
    exit::{CommandAnswer, CommandExit},
    flags::value,
    format::{OutputFormat, OutputOptions},
    reading::ReadingOptions,
    terminal::print,
};
use mcm_insight::{read_only::ReadOnly, reader, story::NamespaceFacts};
use mcm_rules::plan::SubjectRef;

pub(super) use timeline::{EventLine, text};

/// Time between two reads of the events.
const LOOK: Duration = Duration::from_secs(2);
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
    #[command(flatten)]
    output: OutputOptions,
}

/// Shows the events of a family of objects.
///
/// # Errors
/// The control cluster cannot be read, or has no such object.
pub async fn run(options: EventsOptions) -> Result<CommandAnswer> {
    let cell = options.reading.open().await?;
    let facts = reader::facts(&cell).await?;
    let object = options.object.as_deref().map(|wanted| reader::find(&facts, wanted)).transpose()?;
    let (mut lines, notes) = lines(&cell, &facts, object.as_ref()).await?;
    if let Some(since) = options.since.and_then(|since| SignedDuration::try_from(since).ok()) {
        lines.retain(|line| facts.now.duration_since(line.last) <= since);
    }
    let look = options.output.look();
    let render = |lines: &[EventLine]| match options.output.format {
        OutputFormat::Text => timeline::text(look, lines, facts.now),
        OutputFormat::Json => timeline::json_lines(lines),
    };
    let mut text = render(&lines);
    if options.output.format == OutputFormat::Text {
        if lines.is_empty() {
            text = "there are no events\n".to_owned();
        }
        notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    }
    if !options.watch {
        return Ok(CommandAnswer { text, exit: CommandExit::Good });
    }
    let ended = || CommandAnswer { text: String::new(), exit: CommandExit::Good };
    if !print(&text)? {
        return Ok(ended());
    }
    let mut shown: BTreeSet<_> = lines.iter().map(EventLine::occurrence).collect();
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let facts = reader::cached(&cell, Vec::new());
        let (mut more, _) = self::lines(&cell, &facts, object.as_ref()).await?;
        more.retain(|line| shown.insert(line.occurrence()));
        if !print(&render(&more))? {
            return Ok(ended());
        }
    }
}

/// The events of an object with its family, or of everything; and notes about what could not be read.
pub(super) async fn lines(
    cell: &ReadOnly,
    facts: &NamespaceFacts,
    object: Option<&SubjectRef>,
) -> Result<(Vec<EventLine>, Vec<String>)> {
    let family = timeline::EventSubjects::for_object(facts, object);
    let events: Api<Event> = Api::namespaced(cell.control.clone(), &cell.namespace);
    let mut events = reader::pages(&events, ListParams::default()).await?;
    let mut notes = Vec::new();
    if let Some(target) = &cell.target {
        let of_nodes: Api<Event> = Api::namespaced(target.clone(), OF_NODES);
        match reader::pages(&of_nodes, ListParams::default().fields("involvedObject.kind=Node")).await {
            Ok(of_nodes) => events.extend(of_nodes),
            Err(error) => notes.push(format!("events of Nodes could not be read: {error:#}")),
        }
    }
    let mut lines = timeline::lines(&family, &events);
    lines.extend(timeline::changes(facts, &family));
    lines.sort_by(|one, other| (one.last, &one.name, &one.reason).cmp(&(other.last, &other.name, &other.reason)));
    Ok((lines, notes))
}
