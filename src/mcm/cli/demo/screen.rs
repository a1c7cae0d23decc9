//! Output of the demo: redrawn in place on a terminal, plain lines elsewhere.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use jiff::Timestamp;
use parking_lot::Mutex;

use super::shown::DemoView;
use crate::cli::picture::{TEXT, svg};

/// Minimum time between two frames.
const FRAME: Duration = Duration::from_millis(80);

/// The most columns that are used.
const WIDEST: u16 = 140;

/// A terminal, or a pipe.
pub struct DemoScreen {
    live: bool,
    colours: bool,
    bars: MultiProgress,
    record: Option<PathBuf>,
    said: Mutex<BTreeMap<String, String>>,
}

/// One act on the screen.
pub struct ActDisplay<'a, P> {
    screen: &'a DemoScreen,
    table: ProgressBar,
    progress: Option<ProgressBar>,
    drawn_at: Option<Instant>,
    last: Option<P>,
}

impl DemoScreen {
    /// With `live`, redraws in place.
    pub fn new(live: bool, record: Option<PathBuf>) -> Self {
        let colours = live && std::env::var_os("NO_COLOR").is_none();
        Self { live, colours, bars: MultiProgress::new(), record, said: Mutex::default() }
    }

    /// Its width; that of a wide terminal in a pipe.
    #[must_use]
    pub fn width(&self) -> u16 {
        if self.live { width() } else { WIDEST }
    }

    /// Prints a text above the table.
    pub fn say(&self, text: &str) {
        if self.live {
            let _ = self.bars.println(text);
        } else {
            eprintln!("{text}");
        }
    }

    /// Begins an act, with a progress bar of `steps` if given.
    pub fn picture<P>(&self, title: &str, steps: Option<u64>) -> ActDisplay<'_, P> {
        let headline = if self.colours { format!("\n\x1b[1;34m▶ {title}\x1b[0m") } else { format!("\n▶ {title}") };
        self.say(&headline);
        let hidden = |bar: ProgressBar| if self.live { self.bars.add(bar) } else { ProgressBar::hidden() };
        let table = hidden(ProgressBar::new_spinner());
        table.set_style(style("{msg}"));
        let progress = steps.map(|steps| {
            let bar = hidden(ProgressBar::new(steps));
            bar.set_style(style("  {bar:40.green/dim} {pos} of {len} machines are new · {elapsed}"));
            bar
        });
        ActDisplay { screen: self, table, progress, drawn_at: None, last: None }
    }

    /// One line for each created, changed or deleted object.
    fn say_changes(&self, now: BTreeMap<String, String>) {
        let mut said = self.said.lock();
        for (name, phase) in &now {
            match said.get(name) {
                Some(before) if before == phase => {}
                Some(before) => eprintln!("  {name}: {before} → {phase}"),
                None => eprintln!("  {name}: {phase}"),
            }
        }
        for name in said.keys().filter(|name| !now.contains_key(*name)) {
            eprintln!("  {name}: deleted");
        }
        *said = now;
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

impl<P: DemoView> ActDisplay<'_, P> {
    /// Shows the current objects.
    pub fn show(&mut self, props: &P, steps_done: u64) {
        if !self.screen.live {
            self.screen.say_changes(props.states());
            self.last = Some(props.clone());
            return;
        }
        if self.drawn_at.is_some_and(|at| at.elapsed() < FRAME) {
            return;
        }
        self.drawn_at = Some(Instant::now());
        self.table.set_message(props.frame(Timestamp::now(), width(), self.screen.colours));
        if let Some(progress) = &self.progress {
            progress.set_position(steps_done);
        }
        self.last = Some(props.clone());
    }

    /// Ends the act with a line.
    pub fn done(self, line: &str) {
        self.table.finish_and_clear();
        if let Some(progress) = &self.progress {
            progress.finish_and_clear();
        }
        if let (true, Some(props)) = (self.screen.live, &self.last) {
            self.screen.say(&props.frame(Timestamp::now(), width(), self.screen.colours));
        }
        let line = if self.screen.colours { format!("\x1b[32m✔\x1b[0m {line}") } else { format!("✔ {line}") };
        self.screen.say(&line);
    }

    /// Writes the frame that is shown to the folder for recordings, if there is one.
    pub fn record(&self, name: &str) {
        let (Some(folder), Some(props)) = (&self.screen.record, &self.last) else { return };
        let text = props.frame(Timestamp::now(), 120, false);
        let picture = svg(text.lines().map(|line| (line, TEXT)));
        let file = folder.join(format!("{name}.svg"));
        if let Err(error) = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, picture)) {
            self.screen.say(&format!("cannot write {}: {error}", file.display()));
        }
    }
}

fn width() -> u16 {
    let columns = console_width().or_else(|| std::env::var("COLUMNS").ok()?.parse().ok());
    columns.unwrap_or(100).clamp(60, WIDEST)
}

fn console_width() -> Option<u16> {
    comfy_table::Table::new().width()
}
