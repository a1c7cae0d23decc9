//! `mcm events`: the events of a deployment with its sets, machines and Nodes in one list.

mod timeline;

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
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
use mcm_insight::{error::error_line, read_only::ReadOnly, reader, story::NamespaceFacts};
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
    /// Show the events of all namespaces with machine objects
    #[arg(short = 'A', long, conflicts_with_all = ["object", "namespace", "watch"])]
    all_namespaces: bool,
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
    if options.all_namespaces {
        return of_all(&options).await;
    }
    let cell = options.reading.open().await?;
    let facts = reader::facts(&cell).await?;
    let object = options.object.as_deref().map(|wanted| reader::find(&facts, wanted)).transpose()?;
    let (mut lines, notes) = lines(&cell, &facts, object.as_ref()).await?;
    recent(&mut lines, &options, facts.now);
    let text = whole(&options, &facts.place.title(&facts.namespace), &lines, &notes, facts.now);
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
        if !print(&render(&options, &more, facts.now))? {
            return Ok(ended());
        }
    }
}

/// The events of all namespaces, in one list.
async fn of_all(options: &EventsOptions) -> Result<CommandAnswer> {
    let read = async |cell: ReadOnly| lines(&cell, &reader::cached(&cell, Vec::new()), None).await;
    let found = options.reading.each_namespace(read).await?;
    let (mut notes, now, title) = (found.notes(), Timestamp::now(), found.place.title_of_all());
    let mut all = Vec::new();
    for (lines, more) in found.readings {
        all.extend(lines.into_iter().map(EventLine::with_namespace_in_name));
        notes.extend(more.into_iter().filter(|note| !notes.contains(note)).collect::<Vec<_>>());
    }
    all.sort_by(EventLine::order);
    recent(&mut all, options, now);
    Ok(CommandAnswer { text: whole(options, &title, &all, &notes, now), exit: CommandExit::Good })
}

fn recent(lines: &mut Vec<EventLine>, options: &EventsOptions, now: Timestamp) {
    if let Some(since) = options.since.and_then(|since| SignedDuration::try_from(since).ok()) {
        lines.retain(|line| now.duration_since(line.last) <= since);
    }
}

fn render(options: &EventsOptions, lines: &[EventLine], now: Timestamp) -> String {
    match options.output.format {
        OutputFormat::Text => timeline::text(options.output.look(), lines, now),
        OutputFormat::Json => timeline::json_lines(lines),
    }
}

/// The answer with its head and its notes.
fn whole(options: &EventsOptions, title: &str, lines: &[EventLine], notes: &[String], now: Timestamp) -> String {
    let text = render(options, lines, now);
    if options.output.format == OutputFormat::Json {
        return text;
    }
    let text = if lines.is_empty() { "there are no events\n".to_owned() } else { text };
    let notes: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
    format!("{title}\n{text}{notes}")
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
            Err(error) => notes.push(format!("events of Nodes could not be read: {}", error_line(&error))),
        }
    }
    let mut lines = timeline::lines(&family, &events);
    lines.extend(timeline::changes(facts, &family));
    lines.sort_by(EventLine::order);
    Ok((lines, notes))
}
