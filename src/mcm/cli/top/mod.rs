//! `mcm top`: deployments and their machines on the whole screen.

mod view;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use jiff::Timestamp;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEventKind},
};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
#[cfg(test)]
pub(super) use view::TopVerdict;
use view::{KeyEffect, TopModel, TopPage, TopViewState};

use super::{
    events,
    exit::{CommandAnswer, CommandExit},
    reading::ReadingOptions,
    terminal::LookOptions,
    tree,
};
use mcm_insight::{
    answers::ServerAnswers, error::error_line, place::CallTarget, read_only::ReadOnly, reader, report,
    story::NamespaceFacts, terminal::TerminalLook,
};
use mcm_rules::plan::SubjectRef;

/// Time between two reads of the caches.
const LOOK: Duration = Duration::from_secs(1);
/// Reads of the caches between two reads of the Leases.
const LEASES: usize = 5;
/// Keys that wait to be handled.
const KEYS: usize = 64;

/// Options of the command.
#[derive(Args, Debug)]
pub struct TopOptions {
    /// Show all namespaces with deployments or sets
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    reading: ReadingOptions,
    #[command(flatten)]
    look: LookOptions,
}

/// Shows the screen until the user ends it; in a pipe one frame.
///
/// # Errors
/// The control cluster cannot be read, or the terminal cannot be used.
pub async fn run(options: TopOptions) -> Result<CommandAnswer> {
    let look = options.look.stdout();
    let mut source = match options.all_namespaces {
        true => {
            let found = options.reading.each_namespace(async |cell| Ok(NamespaceSource::open(cell).await)).await?;
            TopSource { is_of_all: true, refused: found.notes(), place: found.place, namespaces: found.readings }
        }
        false => TopSource::of_one(options.reading.open().await?).await,
    };
    if !look.is_terminal {
        return Ok(CommandAnswer { text: view::plain(look, &source.model()), exit: source.exit() });
    }
    let terminal = ratatui::try_init().context("use the terminal")?;
    let ended = follow(terminal, &mut source, &options, look).await;
    ratatui::restore();
    ended.map(|()| CommandAnswer { text: String::new(), exit: CommandExit::Good })
}

/// The caches of a namespace, and the facts in them.
struct NamespaceSource {
    cell: ReadOnly,
    answers: ServerAnswers,
    facts: NamespaceFacts,
}

impl NamespaceSource {
    async fn open(cell: ReadOnly) -> Self {
        let answers = ServerAnswers::first(&cell).await;
        Self { facts: reader::cached(&cell, answers.managers.clone()), answers, cell }
    }

    async fn read(&mut self, reads_leases: bool) {
        if reads_leases {
            self.answers.read(&self.cell).await;
        }
        self.facts = reader::cached(&self.cell, self.answers.managers.clone());
    }
}

/// The namespaces on the screen.
struct TopSource {
    is_of_all: bool,
    /// Notes about namespaces that the user may not read.
    refused: Vec<String>,
    place: CallTarget,
    namespaces: Vec<NamespaceSource>,
}

impl TopSource {
    async fn of_one(cell: ReadOnly) -> Self {
        let (place, namespaces) = (cell.place.clone(), vec![NamespaceSource::open(cell).await]);
        Self { is_of_all: false, refused: Vec::new(), place, namespaces }
    }

    fn exit(&self) -> CommandExit {
        match self.refused.is_empty() {
            true => CommandExit::of_facts(self.namespaces.iter().map(|one| &one.facts)),
            false => CommandExit::No,
        }
    }

    fn model(&self) -> TopModel {
        let silent = self.namespaces.iter().find_map(|one| one.answers.silent_since());
        let models = self.namespaces.iter().map(|one| TopModel::from_facts(&one.facts));
        let model = match self.is_of_all {
            true => TopModel::of_all(&self.place.cluster, models, &self.refused, Timestamp::now()),
            false => models.reduce(|first, _| first).unwrap_or_default(),
        };
        model.silent(silent)
    }

    async fn read(&mut self, reads_leases: bool) {
        for one in &mut self.namespaces {
            one.read(reads_leases).await;
        }
    }

    /// The text of a page about an object.
    async fn text(&self, page: TopPage, object: &SubjectRef, look: TerminalLook) -> String {
        match self.namespaces.iter().find(|one| one.facts.namespace == object.namespace) {
            Some(one) => text(&one.cell, &one.facts, page, object, look).await,
            None => String::new(),
        }
    }
}

async fn follow(
    mut terminal: DefaultTerminal,
    source: &mut TopSource,
    options: &TopOptions,
    look: TerminalLook,
) -> Result<()> {
    let (mut keys, mut view) = (keys(), TopViewState::default());
    let mut model = source.model();
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shown = Vec::new();
    for tick in 1_usize.. {
        let size = terminal.size().context("read the size of the terminal")?;
        let lines = view.lines(&model, look, usize::from(size.width), usize::from(size.height));
        if lines != shown {
            terminal.draw(|frame| view::draw(frame, &lines, look)).context("write to the terminal")?;
            shown = lines;
        }
        tokio::select! {
            event = keys.recv() => match event {
                None => return Ok(()),
                // A new size clears the screen.
                Some(Event::Resize(..)) => shown.clear(),
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => match view.key(key, &model) {
                    KeyEffect::None => {}
                    KeyEffect::Quit => return Ok(()),
                    KeyEffect::Open(page, object) => view.open(page, source.text(page, &object, look).await),
                    KeyEffect::Namespace(namespace) => {
                        *source = TopSource::of_one(options.reading.within(namespace).open().await?).await;
                        model = source.model();
                    }
                },
                Some(_) => {}
            },
            _ = ticks.tick() => {
                source.read(tick % LEASES == 0).await;
                model = source.model();
            }
        }
    }
    Ok(())
}

/// Reads keys in a thread, which ends with the process.
fn keys() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(KEYS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                break;
            }
        }
    });
    receiver
}

/// The text of a page about an object.
async fn text(
    cell: &ReadOnly,
    facts: &NamespaceFacts,
    page: TopPage,
    object: &SubjectRef,
    look: TerminalLook,
) -> String {
    let look = TerminalLook { colours: false, ..look };
    match page {
        TopPage::Why => {
            let notes = reader::notes(cell, facts);
            report::one(look, &facts.answer(object), facts.manager_for(object), &notes, facts)
        }
        TopPage::Tree => {
            let (branches, notes) = tree::grow(cell, facts, std::slice::from_ref(object)).await;
            notes.iter().fold(tree::report::text(look, &branches, false, facts.now), |text, note| {
                format!("{text}note: {note}\n")
            })
        }
        TopPage::Events => match events::lines(cell, facts, Some(object)).await {
            Ok((lines, _)) => events::text(look, &lines, facts.now),
            Err(error) => format!("{}\n", error_line(&error)),
        },
        TopPage::Help => view::HELP.to_owned(),
    }
}

/// The verdict of each row.
#[cfg(test)]
pub(super) fn verdicts(facts: &NamespaceFacts) -> Vec<TopVerdict> {
    TopModel::from_facts(facts).verdicts()
}

#[cfg(test)]
mod tests;
