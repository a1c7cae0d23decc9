//! One run: its parameters, its progress, its figures, and their bounds.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env, fmt, fs,
    path::PathBuf,
    str::FromStr,
    time::{Duration, Instant},
};

use rand::{SeedableRng, rngs::StdRng};
use serde::Serialize;

/// `name=value`, with commas between them.
const PARAMETERS: &str = "MCM_FAULTS";
/// Set if runs take their small numbers.
const QUICK: &str = "MCM_FAULTS_QUICK";
/// Folder for the figures of each run.
const OUTPUT: &str = "MCM_FAULTS_OUTPUT";

/// A run in progress.
pub struct Run {
    name: &'static str,
    given: BTreeMap<String, String>,
    is_quick: bool,
    started: Instant,
    record: RefCell<Record>,
}

/// The record of a run.
#[derive(Serialize)]
struct Record {
    run: &'static str,
    /// `passed` or `failed`.
    result: &'static str,
    seconds: f64,
    parameters: BTreeMap<String, String>,
    figures: Vec<Figure>,
}

#[derive(Clone, Serialize)]
struct Figure {
    what: String,
    value: f64,
    unit: &'static str,
    /// The required value.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<Bound>,
    holds: bool,
}

/// The bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Bound {
    Exactly(f64),
    AtMost(f64),
    AtLeast(f64),
}

impl Run {
    /// Begins. The name is that of the module.
    pub fn start(name: &'static str) -> Self {
        let text = env::var(PARAMETERS).unwrap_or_default();
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        let given = pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect();
        let record =
            Record { run: name, result: "failed", seconds: 0.0, parameters: BTreeMap::new(), figures: Vec::new() };
        let is_quick = env::var_os(QUICK).is_some_and(|value| value != "0");
        Self { name, given, is_quick, started: Instant::now(), record: RefCell::new(record) }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A parameter: the given one, or one of two defaults.
    pub fn parameter<T: FromStr + fmt::Display>(&self, name: &str, full: T, quick: T) -> T {
        let value = match self.given.get(name) {
            Some(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
            None if self.is_quick => quick,
            None => full,
        };
        self.record.borrow_mut().parameters.insert(name.to_owned(), value.to_string());
        value
    }

    /// The same as a number of things.
    pub fn count(&self, name: &str, full: usize, quick: usize) -> usize {
        self.parameter(name, full, quick)
    }

    /// The same in seconds.
    pub fn seconds(&self, name: &str, full: f64, quick: f64) -> Duration {
        Duration::from_secs_f64(self.parameter(name, full, quick))
    }

    /// Chance, repeatable by the parameter `seed`.
    pub fn dice(&self) -> StdRng {
        let any = u64::from(rand::random::<u32>());
        let seed = self.parameter("seed", any, any);
        self.say(format!("seed={seed} repeats this run"));
        StdRng::seed_from_u64(seed)
    }

    /// Prints the progress.
    pub fn say(&self, text: impl fmt::Display) {
        eprintln!("  {:>6.1} s  {text}", self.started.elapsed().as_secs_f64());
    }

    /// Time since the run began.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Keeps a figure that may be anything.
    pub fn measured(&self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.keep(Figure { what: what.into(), value, unit, bound: None, holds: true });
    }

    /// Records a figure with a bound. The run continues and fails at its end.
    pub fn check(&self, what: impl Into<String>, value: f64, unit: &'static str, bound: Bound) {
        self.keep(Figure { what: what.into(), value, unit, bound: Some(bound), holds: bound.holds(value) });
    }

    /// Keeps a number of things that must not be.
    pub fn none<T: fmt::Debug>(&self, what: &str, found: &[T]) {
        if !found.is_empty() {
            self.say(format!("{what}: {found:?}"));
        }
        self.check(what, number(found.len()), "", Bound::Exactly(0.0));
    }

    /// Keeps a number of things that is known before.
    pub fn exactly(&self, what: impl Into<String>, value: usize, expected: usize) {
        self.check(what, number(value), "", Bound::Exactly(number(expected)));
    }

    fn keep(&self, mut figure: Figure) {
        // The sum of no numbers is -0.
        figure.value += 0.0;
        self.say(&figure);
        self.record.borrow_mut().figures.push(figure);
    }

    /// Fails if a figure is not as it has to be.
    pub fn assert_holds(&self) {
        let broken: Vec<String> =
            self.record.borrow().figures.iter().filter(|figure| !figure.holds).map(Figure::to_string).collect();
        assert!(broken.is_empty(), "{}", broken.join("; "));
    }

    /// Fails if a figure is not as it has to be.
    pub fn finish(self) {
        self.assert_holds();
        self.record.borrow_mut().result = "passed";
    }
}

impl Drop for Run {
    /// A failed run also prints its figures.
    fn drop(&mut self) {
        let mut record = self.record.borrow_mut();
        record.seconds = self.started.elapsed().as_secs_f64();
        let folder = env::var_os(OUTPUT).map_or_else(|| PathBuf::from("target/faults"), PathBuf::from);
        let written = fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join(format!("{}.json", self.name)), json(&record)))
            .and_then(|()| fs::write(folder.join(format!("{}.tsv", self.name)), record.rows()));
        if let Err(error) = written {
            eprintln!("the figures of {} are lost: {error}", self.name);
        }
    }
}

fn json(record: &Record) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

impl Record {
    /// Result, run, figure, value, bound: with tabs between them, for `hack/faults`.
    fn rows(&self) -> String {
        let head = format!("{}\t{}\ttime\t{:.0} s\t\n", self.result, self.run, self.seconds);
        let rows = self.figures.iter().map(|figure| {
            let result = if figure.holds { "" } else { "BROKEN" };
            let bound = figure.bound.map(|bound| bound.to_string()).unwrap_or_default();
            format!("{result}\t{}\t{}\t{} {}\t{bound}\n", self.run, figure.what, round(figure.value), figure.unit)
        });
        std::iter::once(head).chain(rows).collect()
    }
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Exactly(wanted) => (value - wanted).abs() < f64::EPSILON,
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(value) => write!(f, "= {}", round(*value)),
            Self::AtMost(value) => write!(f, "<= {}", round(*value)),
            Self::AtLeast(value) => write!(f, ">= {}", round(*value)),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.what, round(self.value), self.unit)?;
        match self.bound {
            Some(bound) if self.holds => write!(f, " ({bound})"),
            Some(bound) => write!(f, " BROKEN, it has to be {bound}"),
            None => Ok(()),
        }
    }
}

/// Whole numbers without decimals, others with a readable number of decimals.
fn round(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// A number of things, as a figure.
pub fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// The value that a share of all values does not exceed. There must be a value.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * number(sorted.len())).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}
