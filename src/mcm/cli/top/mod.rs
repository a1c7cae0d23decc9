//! `mcm top`: deployments and their machines on the whole screen.

mod view;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEventKind},
};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use view::{KeyEffect, TopModel, TopPage, TopViewState};

use super::{
    events,
    exit::{CommandAnswer, CommandExit},
    reading::ReadingOptions,
    terminal::LookOptions,
    tree,
};
use mcm_insight::{
    answers::ServerAnswers, read_only::ReadOnly, reader, report, story::NamespaceFacts, terminal::TerminalLook,
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
    let cell = options.reading.open().await?;
    if !look.is_terminal {
        let facts = reader::cached(&cell, reader::managers(&cell).await);
        return Ok(CommandAnswer { text: view::plain(look, &TopModel::from_facts(&facts)), exit: CommandExit::Good });
    }
    let terminal = ratatui::try_init().context("use the terminal")?;
    let ended = follow(terminal, cell, &options, look).await;
    ratatui::restore();
    ended.map(|()| CommandAnswer { text: String::new(), exit: CommandExit::Good })
}

async fn follow(
    mut terminal: DefaultTerminal,
    mut cell: ReadOnly,
    options: &TopOptions,
    look: TerminalLook,
) -> Result<()> {
    let (mut keys, mut view) = (keys(), TopViewState::default());
    let mut answers = ServerAnswers::first(&cell).await;
    let mut facts = reader::cached(&cell, answers.managers.clone());
    let mut model = TopModel::from_facts(&facts);
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
                    KeyEffect::Open(page, object) => view.open(page, text(&cell, &facts, page, &object, look).await),
                    KeyEffect::Namespace(namespace) => {
                        let mut reading = options.reading.clone();
                        reading.namespace = Some(namespace);
                        cell = reading.open().await?;
                        answers = ServerAnswers::first(&cell).await;
                        facts = reader::cached(&cell, answers.managers.clone());
                        model = TopModel::from_facts(&facts);
                    }
                },
                Some(_) => {}
            },
            _ = ticks.tick() => {
                if tick % LEASES == 0 {
                    answers.read(&cell).await;
                }
                facts = reader::cached(&cell, answers.managers.clone());
                model = TopModel::from_facts(&facts).silent(answers.silent_since());
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
            report::one(look, &facts.answer(object), facts.manager_of(&object.kind), &notes, facts.now)
        }
        TopPage::Tree => {
            let (branches, notes) = tree::grow(cell, facts, std::slice::from_ref(object)).await;
            notes.iter().fold(tree::report::text(look, &branches, false, facts.now), |text, note| {
                format!("{text}note: {note}\n")
            })
        }
        TopPage::Events => match events::lines(cell, facts, Some(object)).await {
            Ok((lines, _)) => events::text(look, &lines, facts.now),
            Err(error) => format!("{error:#}\n"),
        },
        TopPage::Help => view::HELP.to_owned(),
    }
}
