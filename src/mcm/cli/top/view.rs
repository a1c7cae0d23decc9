//! The screen: from facts and keys to lines. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use ratatui::{
    Frame,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

use crate::cli::rollout::bar;
use mcm_api::kinds::MACHINE_DEPLOYMENTS;
use mcm_insight::{
    grouping::{CauseNames, FEWEST, by_key, merged, placed},
    progress::{RolloutProgress, RolloutState},
    story::{DEPLOYMENT, MACHINE, NamespaceFacts, ObjectAnswer, ObjectVerdict},
    terminal::{StatusMark, TerminalLook, ago, cut},
};
use mcm_rules::plan::{SubjectRef, counted};

/// Columns of the bar of a deployment.
const BAR: usize = 8;
/// Columns of the name of the cluster.
const CLUSTER: usize = 24;
/// The widest name of a deployment.
const WIDEST_NAME: usize = 28;
/// The most machines that run and have a row each.
const SETTLED: usize = 20;
/// The most objects that are named because they cannot be decoded.
const MOST_UNREADABLE: usize = 3;
/// Height of a frame in a pipe, which is not cut.
const WHOLE: usize = usize::MAX;
/// Width of a frame in a pipe.
const WIDE: usize = 160;

/// The keys.
pub(super) const HELP: &str = "\
↑ ↓ k j    choose a deployment; scroll a text
enter      why the chosen deployment does not progress
t          its tree
e          its events
l          only deployments that are not settled
/          filter by name; enter ends it
s          sort by name, by state, or by the number of machines
n          another namespace
?          this help
q Esc      back; quit
";
const KEYS: &str =
    " ↑↓ choose  enter why  t tree  e events  l only waiting  / filter  s sort  n namespace  ? help  q quit";
const KEYS_SHORT: &str = " enter why  t tree  e events  l waiting  / filter  s sort  n ns  ? help  q quit";

/// Everything that the screen shows.
#[derive(Default)]
pub(super) struct TopModel {
    namespace: String,
    cluster: String,
    now: Timestamp,
    manager: String,
    phases: BTreeMap<String, usize>,
    /// Kinds that could not be read, and namespaces.
    unread: BTreeSet<String>,
    /// Objects that cannot be decoded, each with the command that corrects it.
    unreadable: Vec<(String, String)>,
    deployments: Vec<DeploymentRow>,
}

struct DeploymentRow {
    object: SubjectRef,
    progress: RolloutProgress,
    answer: ObjectAnswer,
    state: RolloutState,
    machines: Vec<MachineRow>,
}

/// A machine, or several with one cause.
struct MachineRow {
    name: String,
    phase: String,
    class: String,
    node: String,
    age: String,
    verdict: ObjectVerdict,
    why: String,
    /// How many machines it stands for.
    count: usize,
}

/// A page over the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopPage {
    Why,
    Tree,
    Events,
    Help,
}

/// An effect of a key outside the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyEffect {
    None,
    Quit,
    /// Open a page about an object.
    Open(TopPage, SubjectRef),
    /// Show another namespace.
    Namespace(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SortColumn {
    #[default]
    Name,
    State,
    Size,
}

/// A text that the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PromptField {
    Filter,
    Namespace,
}

/// The choices of the user.
#[derive(Default)]
pub(super) struct TopViewState {
    chosen: usize,
    only_waiting: bool,
    filter: String,
    sort: SortColumn,
    prompt: Option<(PromptField, String)>,
    page: Option<(TopPage, String)>,
    scroll: usize,
}

/// A line of the screen with its role.
pub(super) type ScreenLine = (LineStyle, String);

/// The colour and weight of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineStyle {
    Plain,
    Head,
    Chosen,
    Good,
    Busy,
    Look,
    Bad,
    Faint,
}

impl TopModel {
    pub(super) fn from_facts(facts: &NamespaceFacts) -> Self {
        let mut phases = BTreeMap::new();
        for machine in facts.machines.values() {
            let phase =
                if machine.is_terminating() { "Terminating".to_owned() } else { machine.phase().as_str().to_owned() };
            *phases.entry(if phase.is_empty() { "New".to_owned() } else { phase }).or_default() += 1;
        }
        let names: CauseNames<'_> = facts.machines.keys().map(String::as_str).collect();
        let deployment = |name: &String| {
            let (object, progress) = (facts.subject(DEPLOYMENT, name), facts.progress(name)?);
            let answer = facts.answer(&object);
            let state = facts.state(&progress, &answer);
            let mut machines: Vec<MachineRow> =
                facts.machines_of(&object).filter_map(|name| row(facts, name)).collect();
            machines.sort_by(|one, other| other.verdict.cmp(&one.verdict).then_with(|| one.name.cmp(&other.name)));
            let machines = grouped(facts, &names, machines);
            Some(DeploymentRow { object, progress, answer, state, machines })
        };
        let manager = facts.manager_of(DEPLOYMENT).map(|manager| match manager.is_alive(facts.now) {
            true => format!("{} leads{}", manager.holder, manager.park_clause()),
            false => manager.state(facts.now),
        });
        let deployments = facts.deployments.keys().filter_map(deployment).collect();
        let manager = manager.unwrap_or_default();
        let (namespace, cluster) = (facts.namespace.clone(), facts.place.cluster.clone());
        let unread = facts.unread.iter().cloned().collect();
        let unreadable = facts.corrections().map(|(one, command)| (one.to_string(), command)).collect();
        Self { namespace, cluster, now: facts.now, manager, phases, unread, unreadable, deployments }
    }

    /// The deployments of all namespaces of a cluster, each with the name of its namespace.
    pub(super) fn of_all(
        cluster: &str,
        namespaces: impl Iterator<Item = Self>,
        refused: &[String],
        now: Timestamp,
    ) -> Self {
        let (namespace, unread) = ("all namespaces".to_owned(), refused.iter().cloned().collect());
        let mut all = Self { namespace, cluster: cluster.to_owned(), now, unread, ..Self::default() };
        for model in namespaces {
            model.phases.into_iter().for_each(|(phase, number)| *all.phases.entry(phase).or_default() += number);
            all.unread.extend(model.unread);
            all.unreadable.extend(model.unreadable);
            all.deployments.extend(model.deployments.into_iter().map(|mut row| {
                row.progress.name = format!("{}/{}", model.namespace, row.progress.name);
                row
            }));
        }
        all
    }

    /// The same while the API server does not answer: the objects are those of that time.
    pub(super) fn silent(self, since: Option<Timestamp>) -> Self {
        match since {
            Some(since) => Self { manager: format!("no answer since {}", since.strftime("%H:%M:%S")), ..self },
            None => self,
        }
    }
}

/// The verdict of a row, and the word of a deployment.
#[cfg(test)]
pub(in crate::cli) struct TopVerdict {
    pub kind: &'static str,
    pub name: String,
    pub verdict: ObjectVerdict,
    pub word: Option<String>,
}

#[cfg(test)]
impl TopModel {
    /// The verdict of each row.
    pub(super) fn verdicts(&self) -> Vec<TopVerdict> {
        let of_deployment = |row: &DeploymentRow| {
            let machines = row.machines.iter().map(|one| TopVerdict {
                kind: MACHINE,
                name: one.name.clone(),
                verdict: one.verdict,
                word: None,
            });
            let own = TopVerdict {
                kind: DEPLOYMENT,
                name: row.object.name.clone(),
                verdict: row.answer.verdict,
                word: Some(row.state(self.now).2),
            };
            [own].into_iter().chain(machines).collect::<Vec<_>>()
        };
        self.deployments.iter().flat_map(of_deployment).collect()
    }
}

fn row(facts: &NamespaceFacts, name: &str) -> Option<MachineRow> {
    let machine = facts.machines.get(name)?;
    let answer = facts.answer(&facts.subject(MACHINE, name));
    let created = machine.metadata.creation_timestamp.as_ref();
    Some(MachineRow {
        name: name.to_owned(),
        phase: answer.state.clone(),
        class: machine.spec.class.name.clone(),
        node: machine.node_name().unwrap_or_default().to_owned(),
        age: created.map(|created| ago(facts.now, created.0)).unwrap_or_default(),
        verdict: answer.verdict,
        why: if answer.verdict == ObjectVerdict::Settled { String::new() } else { answer.reason() },
        count: 1,
    })
}

/// The rows of machines. Many with the same cause, or that run, have one.
fn grouped(facts: &NamespaceFacts, names: &CauseNames<'_>, rows: Vec<MachineRow>) -> Vec<MachineRow> {
    let key = |row: &MachineRow| (row.verdict, row.phase.clone(), row.class.clone(), names.pattern(&row.why));
    let groups: Vec<Vec<usize>> = by_key(0..rows.len(), |number| key(&rows[number]));
    let mut rows: Vec<Option<MachineRow>> = rows.into_iter().map(Some).collect();
    let mut shown = Vec::new();
    for alike in groups {
        let alike: Vec<MachineRow> = alike.into_iter().filter_map(|number| rows.get_mut(number)?.take()).collect();
        match alike.first() {
            Some(first) if alike.len() > if first.verdict == ObjectVerdict::Settled { SETTLED } else { FEWEST - 1 } => {
                shown.push(row_of_many(facts, first, &alike));
            }
            _ => shown.extend(alike),
        }
    }
    shown
}

fn row_of_many(facts: &NamespaceFacts, first: &MachineRow, alike: &[MachineRow]) -> MachineRow {
    let place = facts.place_of(alike.iter().filter_map(|row| facts.machines.get(&row.name)));
    let place = if first.verdict == ObjectVerdict::Settled { String::new() } else { place };
    MachineRow {
        name: format!("{} machines", alike.len()),
        phase: first.phase.clone(),
        class: first.class.clone(),
        node: String::new(),
        age: String::new(),
        verdict: first.verdict,
        why: placed(&merged(alike.iter().map(|row| row.why.as_str())), &place),
        count: alike.len(),
    }
}

impl DeploymentRow {
    fn state(&self, now: Timestamp) -> (StatusMark, LineStyle, String) {
        let since = self.answer.since.map(|since| format!(" {}", ago(now, since))).unwrap_or_default();
        let (mark, style, word) = match (&self.state, self.answer.verdict) {
            (RolloutState::Failed(_), _) => (StatusMark::Bad, LineStyle::Bad, "failed"),
            (_, ObjectVerdict::Blocked) => (StatusMark::Bad, LineStyle::Bad, "blocked"),
            (_, ObjectVerdict::Unknown) => (StatusMark::Refused, LineStyle::Look, "unknown"),
            (RolloutState::Done, ObjectVerdict::Settled) => (StatusMark::Good, LineStyle::Good, "settled"),
            (RolloutState::Done | RolloutState::Waiting(_), ObjectVerdict::Waiting) => {
                (StatusMark::Look, LineStyle::Look, "waiting")
            }
            _ => return (StatusMark::Busy, LineStyle::Busy, "rolling".to_owned()),
        };
        (mark, style, format!("{word}{since}"))
    }

    /// It is complete, and nothing of it waits.
    fn is_settled(&self) -> bool {
        self.state == RolloutState::Done && self.answer.verdict == ObjectVerdict::Settled
    }

    fn wait(&self) -> String {
        match self.state.reason() {
            Some(reason) => reason.to_owned(),
            None if self.is_settled() => String::new(),
            None => self.answer.reason(),
        }
    }
}

impl TopViewState {
    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent, model: &TopModel) -> KeyEffect {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return KeyEffect::Quit;
        }
        if let Some((prompt, text)) = self.prompt.take() {
            return self.type_key(prompt, text, key.code);
        }
        if self.page.is_some() {
            match key.code {
                KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
                KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
                _ => self.page = None,
            }
            return KeyEffect::None;
        }
        let count = self.visible(model).len();
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return KeyEffect::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.chosen = (self.chosen + 1).min(count.saturating_sub(1)),
            KeyCode::Enter => return self.about(TopPage::Why, model),
            KeyCode::Char('t') => return self.about(TopPage::Tree, model),
            KeyCode::Char('e') => return self.about(TopPage::Events, model),
            KeyCode::Char('?') => self.open(TopPage::Help, HELP.to_owned()),
            KeyCode::Char('l') => self.only_waiting = !self.only_waiting,
            KeyCode::Char('s') => {
                self.sort = match self.sort {
                    SortColumn::Name => SortColumn::State,
                    SortColumn::State => SortColumn::Size,
                    SortColumn::Size => SortColumn::Name,
                }
            }
            KeyCode::Char('/') => self.prompt = Some((PromptField::Filter, self.filter.clone())),
            KeyCode::Char('n') => self.prompt = Some((PromptField::Namespace, String::new())),
            _ => {}
        }
        KeyEffect::None
    }

    fn type_key(&mut self, prompt: PromptField, mut text: String, key: KeyCode) -> KeyEffect {
        match key {
            KeyCode::Esc => return KeyEffect::None,
            KeyCode::Enter => {
                if prompt == PromptField::Namespace && !text.is_empty() {
                    self.chosen = 0;
                    return KeyEffect::Namespace(text);
                }
                return KeyEffect::None;
            }
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(sign) => text.push(sign),
            _ => {}
        }
        if prompt == PromptField::Filter {
            self.filter.clone_from(&text);
        }
        self.prompt = Some((prompt, text));
        KeyEffect::None
    }

    fn about(&self, page: TopPage, model: &TopModel) -> KeyEffect {
        let chosen = self.chosen(model).map(|deployment| deployment.object.clone());
        chosen.map_or(KeyEffect::None, |object| KeyEffect::Open(page, object))
    }

    /// Shows a page over the list.
    pub(super) fn open(&mut self, page: TopPage, text: String) {
        (self.page, self.scroll) = (Some((page, text)), 0);
    }

    fn visible<'a>(&self, model: &'a TopModel) -> Vec<&'a DeploymentRow> {
        let is_shown = |one: &&DeploymentRow| {
            (!self.only_waiting || !one.is_settled()) && one.progress.name.contains(&self.filter)
        };
        let mut found: Vec<&DeploymentRow> = model.deployments.iter().filter(is_shown).collect();
        match self.sort {
            SortColumn::Name => {}
            SortColumn::State => found.sort_by_key(|one| std::cmp::Reverse((!one.is_settled(), one.answer.verdict))),
            SortColumn::Size => found.sort_by_key(|one| std::cmp::Reverse(one.progress.total)),
        }
        found
    }

    fn chosen<'a>(&self, model: &'a TopModel) -> Option<&'a DeploymentRow> {
        let visible = self.visible(model);
        visible.get(self.chosen.min(visible.len().saturating_sub(1))).copied()
    }

    /// The lines of the screen.
    pub(super) fn lines(&self, model: &TopModel, look: TerminalLook, width: usize, height: usize) -> Vec<ScreenLine> {
        let mut lines = vec![(LineStyle::Head, head(model, width)), (LineStyle::Plain, phases(model))];
        push_unreadable(&mut lines, model);
        let foot = match &self.prompt {
            Some((PromptField::Filter, text)) => format!(" filter: {text}_"),
            Some((PromptField::Namespace, text)) => format!(" namespace: {text}_"),
            None if width > KEYS.chars().count() => KEYS.to_owned(),
            None => KEYS_SHORT.to_owned(),
        };
        let room = height.saturating_sub(lines.len() + 1);
        match &self.page {
            Some((_, text)) => {
                let all = text.lines().count();
                let skipped = self.scroll.min(all.saturating_sub(room));
                lines.extend(text.lines().skip(skipped).take(room).map(|line| (LineStyle::Plain, format!(" {line}"))));
            }
            None => self.push_list(&mut lines, model, look, width, room),
        }
        if height != WHOLE {
            lines.resize(height.saturating_sub(1), (LineStyle::Plain, String::new()));
            lines.push((LineStyle::Faint, foot));
        }
        let written = |(tone, text): ScreenLine| (tone, look.written(cut(&text, width).trim_end()));
        lines.into_iter().map(written).collect()
    }

    fn push_list(&self, lines: &mut Vec<ScreenLine>, model: &TopModel, look: TerminalLook, width: usize, room: usize) {
        let visible = self.visible(model);
        let chosen = self.chosen.min(visible.len().saturating_sub(1));
        let name =
            visible.iter().map(|one| one.progress.name.chars().count()).max().unwrap_or(4).clamp(10, WIDEST_NAME);
        let head = format!(
            " {:<name$}  {:<BAR$}  {:<8}  {:<8}  {:<16} LONGEST WAIT",
            "DEPLOYMENT", "NEW", "UP", "TOTAL", "STATE"
        );
        lines.push((LineStyle::Head, head));
        if visible.is_empty() {
            let place = if model.namespace.contains(' ') { "" } else { "namespace " };
            let known = if model.unread.contains(MACHINE_DEPLOYMENTS.plural) || !model.unreadable.is_empty() {
                "no deployment is known"
            } else {
                "no deployment"
            };
            lines.push((LineStyle::Plain, format!(" {known} in {place}{}", model.namespace)));
        }
        // A third of the screen at most is for the deployments; the chosen one is among those shown.
        let most = (room / 3).max(3);
        let first = chosen.saturating_sub(most.saturating_sub(1));
        for (number, one) in visible.iter().enumerate().skip(first).take(most) {
            let RolloutProgress { up, wanted, total, most, .. } = one.progress;
            let (mark, tone, state) = one.state(model.now);
            let mark = TerminalLook { colours: false, ..look }.mark(mark);
            let pointer = if number == chosen { '▸' } else { ' ' };
            let (up, total) = (format!("{up}/{wanted}"), format!("{total}/{most}"));
            let text = format!(
                "{pointer}{:<name$}  {}  {up:<8}  {total:<8}  {mark} {state:<14} {}",
                cut(&one.progress.name, name),
                bar(&one.progress, BAR),
                one.wait(),
            );
            lines.push((if number == chosen { LineStyle::Chosen } else { tone }, text));
        }
        if let Some(one) = visible.get(chosen) {
            let left = room.saturating_sub(visible.len().saturating_sub(first).min(most) + 3);
            push_machines(lines, one, width, left);
        }
    }
}

/// The first objects that cannot be decoded. Each command has a line, so that it can be copied.
fn push_unreadable(lines: &mut Vec<ScreenLine>, model: &TopModel) {
    for (text, command) in model.unreadable.iter().take(MOST_UNREADABLE) {
        lines.push((LineStyle::Bad, format!(" {text}")));
        lines.push((LineStyle::Plain, format!("   {command}")));
    }
    if let Some(more) = model.unreadable.len().checked_sub(MOST_UNREADABLE).filter(|more| *more > 0) {
        lines.push((LineStyle::Bad, format!(" and {} that cannot be read", counted(more, "more object"))));
    }
}

fn push_machines(lines: &mut Vec<ScreenLine>, deployment: &DeploymentRow, width: usize, room: usize) {
    let title = format!(" ── {} ", deployment.progress.name);
    let rule = "─".repeat(width.saturating_sub(title.chars().count()));
    lines.push((LineStyle::Faint, format!("{title}{rule}")));
    let widest = |text: fn(&MachineRow) -> &String, least: usize, most: usize| {
        let widths = deployment.machines.iter().map(|row| text(row).chars().count());
        widths.max().unwrap_or(least).clamp(least, most)
    };
    let (name, phase) = (widest(|row| &row.name, 7, width / 3), widest(|row| &row.phase, 5, 18));
    let (class, node) = (widest(|row| &row.class, 5, 16), widest(|row| &row.node, 4, width / 5));
    // The name of a Node is dropped first where the screen is narrow.
    let shows_node = width >= 110;
    let line = |row: [&str; 6]| {
        let [machine, in_phase, of_class, on_node, age, why] = row;
        let on_node = if shows_node { format!("{:<node$}  ", cut(on_node, node)) } else { String::new() };
        format!(
            " {:<name$}  {:<phase$}  {:<class$}  {on_node}{age:<6}  {why}",
            cut(machine, name),
            cut(in_phase, phase),
            cut(of_class, class)
        )
    };
    lines.push((LineStyle::Head, line(["MACHINE", "PHASE", "CLASS", "NODE", "AGE", "WAITS FOR"])));
    let shown = if deployment.machines.len() > room { room.saturating_sub(1) } else { room };
    for row in deployment.machines.iter().take(shown) {
        let tone = match row.verdict {
            ObjectVerdict::Settled => LineStyle::Plain,
            ObjectVerdict::Progressing => LineStyle::Busy,
            ObjectVerdict::Waiting => LineStyle::Look,
            ObjectVerdict::Unknown | ObjectVerdict::Blocked => LineStyle::Bad,
        };
        lines.push((tone, line([&row.name, &row.phase, &row.class, &row.node, &row.age, &row.why])));
    }
    let more: usize = deployment.machines.iter().skip(shown).map(|row| row.count).sum();
    if more > 0 {
        lines.push((LineStyle::Faint, format!(" and {more} more")));
    }
}

fn head(model: &TopModel, width: usize) -> String {
    let machines: usize = model.phases.values().sum();
    let (deployments, machines) = (counted(model.deployments.len(), "deployment"), counted(machines, "machine"));
    let cluster = if model.cluster.is_empty() { String::new() } else { format!("{}   ", cut(&model.cluster, CLUSTER)) };
    let left = format!(" mcm top   {cluster}{}   {deployments}  {machines}", model.namespace);
    let time = model.now.strftime("%H:%M:%S").to_string();
    let room = width.saturating_sub(left.chars().count() + time.len() + 5);
    let manager = cut(&model.manager, room.min(60));
    let gap = width.saturating_sub(left.chars().count() + manager.chars().count() + time.len() + 4);
    format!("{left}   {manager}{}{time} ", " ".repeat(gap))
}

fn phases(model: &TopModel) -> String {
    let parts = model.phases.iter().map(|(phase, number)| format!("{phase} {number}"));
    let unread = model.unread.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let unread = (!unread.is_empty()).then(|| format!("not read, so unknown: {unread}"));
    format!(" {}", parts.chain(unread).collect::<Vec<_>>().join("   "))
}

/// One frame as text, of any height.
pub(super) fn plain(look: TerminalLook, model: &TopModel) -> String {
    let lines = TopViewState::default().lines(model, look, look.width.max(WIDE), WHOLE);
    lines.into_iter().map(|(_, text)| format!("{text}\n")).collect()
}

/// Draws lines.
pub(super) fn draw(frame: &mut Frame<'_>, lines: &[ScreenLine], look: TerminalLook) {
    let style = |tone: LineStyle| match tone {
        LineStyle::Chosen => Style::default().add_modifier(Modifier::REVERSED),
        LineStyle::Head => Style::default().add_modifier(Modifier::BOLD),
        _ if !look.colours => Style::default(),
        LineStyle::Plain => Style::default(),
        LineStyle::Good => Style::default().fg(Color::Green),
        LineStyle::Busy => Style::default().fg(Color::Blue),
        LineStyle::Look => Style::default().fg(Color::Yellow),
        LineStyle::Bad => Style::default().fg(Color::Red),
        LineStyle::Faint => Style::default().add_modifier(Modifier::DIM),
    };
    let lines = lines.iter().map(|(tone, text)| Line::from(Span::styled(text.clone(), style(*tone))));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), frame.area());
}

#[cfg(test)]
mod tests;
