use ratatui::{Terminal, backend::TestBackend};
use rstest::rstest;

use super::*;
use crate::cli::picture::{TEXT, tests::published};
use mcm_insight::{
    story::UndecodableObject,
    testing::{TERMINAL, blocked_pool},
};

/// The screen as text.
fn screen(view: &TopViewState, width: u16, height: u16, look: TerminalLook) -> String {
    let model = TopModel::from_facts(&blocked_pool());
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let lines = view.lines(&model, look, usize::from(width), usize::from(height));
    terminal.draw(|frame| draw(frame, &lines, look)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    (0..height).map(row).collect()
}

fn press(view: &mut TopViewState, code: KeyCode) -> KeyEffect {
    view.key(KeyEvent::from(code), &TopModel::from_facts(&blocked_pool()))
}

#[rstest]
#[case("80x24", 80, 24)]
#[case("200x50", 200, 50)]
fn the_screen_fits(#[case] name: &str, #[case] width: u16, #[case] height: u16) {
    insta::assert_snapshot!(name, screen(&TopViewState::default(), width, height, TERMINAL));
}

#[test]
fn the_picture_of_the_docs_is_up_to_date() {
    let mut facts = blocked_pool();
    facts.place.cluster = "seed-one".to_owned();
    let lines = TopViewState::default().lines(&TopModel::from_facts(&facts), TERMINAL, 110, 14);
    let colour = |tone: &LineStyle| match tone {
        LineStyle::Bad => "#bf616a",
        LineStyle::Look => "#ebcb8b",
        LineStyle::Busy => "#81a1c1",
        LineStyle::Good => "#a3be8c",
        LineStyle::Faint => "#7b8494",
        LineStyle::Plain | LineStyle::Head | LineStyle::Chosen => TEXT,
    };
    published("top", lines.iter().map(|(tone, text)| (text.as_str(), colour(tone))));
}

#[test]
fn with_ascii_all_cells_are_ascii() {
    let text = screen(&TopViewState::default(), 80, 24, TerminalLook { unicode: false, ..TERMINAL });
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn a_pipe_gets_one_plain_frame() {
    insta::assert_snapshot!("pipe", plain(TerminalLook::PLAIN, &TopModel::from_facts(&blocked_pool())));
}

#[test]
fn a_silent_api_server_is_shown_with_its_last_answer() {
    let silent = TopModel::from_facts(&blocked_pool()).silent(Some(mcm_insight::testing::at(3661)));
    assert!(plain(TerminalLook::PLAIN, &silent).contains("no answer since 01:01:01"));
    let answering = TopModel::from_facts(&blocked_pool()).silent(None);
    assert!(plain(TerminalLook::PLAIN, &answering).contains("mcm-0 leads"));
}

#[test]
fn keys_open_pages_about_the_chosen_deployment() {
    let pool = SubjectRef { kind: DEPLOYMENT.to_owned(), namespace: "demo".to_owned(), name: "pool".to_owned() };
    let mut view = TopViewState::default();
    for (code, page) in
        [(KeyCode::Enter, TopPage::Why), (KeyCode::Char('t'), TopPage::Tree), (KeyCode::Char('e'), TopPage::Events)]
    {
        assert_eq!(press(&mut view, code), KeyEffect::Open(page, pool.clone()));
    }
    view.open(TopPage::Why, "a long text\n".repeat(100));
    assert_eq!(press(&mut view, KeyCode::Down), KeyEffect::None);
    assert!(screen(&view, 80, 24, TERMINAL).contains("a long text"));
    assert_eq!(press(&mut view, KeyCode::Char('q')), KeyEffect::None, "closes the page");
    assert_eq!(press(&mut view, KeyCode::Char('q')), KeyEffect::Quit);
}

#[test]
fn a_filter_and_a_namespace_are_typed() {
    let mut view = TopViewState::default();
    for code in [KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Enter] {
        assert_eq!(press(&mut view, code), KeyEffect::None);
    }
    assert!(screen(&view, 80, 24, TERMINAL).contains("no deployment"));
    assert_eq!(press(&mut view, KeyCode::Enter), KeyEffect::None, "none is chosen");
    for code in [KeyCode::Char('n'), KeyCode::Char('a'), KeyCode::Char('b'), KeyCode::Backspace] {
        press(&mut view, code);
    }
    assert_eq!(press(&mut view, KeyCode::Enter), KeyEffect::Namespace("a".to_owned()));
}

#[test]
fn help_names_every_key() {
    let mut view = TopViewState::default();
    press(&mut view, KeyCode::Char('?'));
    let text = screen(&view, 80, 24, TERMINAL);
    assert!(text.contains("another namespace") && text.contains("only deployments"), "{text}");
}

#[test]
fn deployments_of_all_namespaces_have_the_name_of_theirs() {
    let mut facts = blocked_pool();
    facts.place.cluster = "blue".to_owned();
    let models = [facts, blocked_pool()].map(|facts| TopModel::from_facts(&facts));
    let text =
        plain(TerminalLook::PLAIN, &TopModel::of_all("blue", models.into_iter(), &[], mcm_insight::testing::at(600)));
    assert_eq!(text.matches("demo/pool ").count(), 3, "two rows, and the title of the chosen one: {text}");
    assert!(text.contains("mcm top   blue   all namespaces   2 deployments  8 machines"), "{text}");
}

#[test]
fn objects_that_cannot_be_decoded_are_named_with_the_commands_that_correct_them() {
    let mut facts = blocked_pool();
    facts.deployments.clear();
    let broken = |name: &str| UndecodableObject {
        kind: DEPLOYMENT.to_owned(),
        name: name.to_owned(),
        owner: None,
        error: "spec.replicas is no number".to_owned(),
    };
    facts.unreadable = ["a", "b", "c", "d"].map(broken).into();
    let text = plain(TerminalLook::PLAIN, &TopModel::from_facts(&facts));
    let command = " kubectl edit machinedeployments.machine.sapcloud.io a -n demo\n";
    for expected in ["MachineDeployment a cannot be read: ", command, "and 1 more object", "no deployment is known"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
