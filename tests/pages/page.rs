//! The commands of a page.

use crate::{cluster::ROOT, support::console};

/// The commands of a page in their order, with what a test puts in the place of names that the page cannot know.
pub struct Page {
    name: &'static str,
    commands: Vec<String>,
}

impl Page {
    /// A whole page.
    pub fn read(name: &'static str) -> Self {
        Self::of(name, &text(name))
    }

    /// The sections below these headings of the second level.
    pub fn sections(name: &'static str, headings: &[&str]) -> Self {
        let text = text(name);
        let all: Vec<&str> = text.split("\n## ").collect();
        let body = |heading: &&str| {
            let found = all.iter().find_map(|section| section.strip_prefix(*heading)?.strip_prefix('\n'));
            found.unwrap_or_else(|| panic!("{name} has no section {heading}"))
        };
        Self::of(name, &headings.iter().map(body).collect::<Vec<_>>().join("\n"))
    }

    fn of(name: &'static str, text: &str) -> Self {
        let steps = console::steps(text, &["```console", "```console run"]);
        let commands: Vec<String> = steps.into_iter().map(|step| step.command).collect();
        assert!(!commands.is_empty(), "{name} has no commands");
        Self { name, commands }
    }

    /// Replaces a text in all commands, which the page must have.
    pub fn with(mut self, from: &str, to: &str) -> Self {
        assert!(self.commands.iter().any(|command| command.contains(from)), "{} has no command with {from}", self.name);
        for command in &mut self.commands {
            *command = command.replace(from, to);
        }
        self
    }

    pub fn commands(&self) -> &[String] {
        &self.commands
    }
}

fn text(name: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}/{name}")).unwrap_or_else(|error| panic!("{name}: {error}"))
}
