//! Console blocks of pages: commands after `$ `, each with its output below it.

use std::fmt::Write as _;

/// A command of a page, and the output below it.
#[derive(Debug, PartialEq)]
pub struct Step {
    pub command: String,
    pub output: String,
}

/// The steps of the blocks that begin with one of these fences. Blocks of lists are indented. A command with `<<END` goes on until `END`.
pub fn steps(page: &str, fences: &[&str]) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    let mut lines = page.lines();
    while let Some(fence) = lines.next() {
        if !fences.contains(&fence.trim_start()) {
            continue;
        }
        let indent = fence.len() - fence.trim_start().len();
        let mut block =
            lines.by_ref().map(|line| line.get(indent..).unwrap_or_default()).take_while(|line| *line != "```");
        while let Some(line) = block.next() {
            match line.strip_prefix("$ ") {
                Some(command) => {
                    let mut command = command.to_owned();
                    while command.contains("<<END") && !command.ends_with("\nEND") {
                        write!(command, "\n{}", block.next().unwrap()).unwrap();
                    }
                    found.push(Step { command, output: String::new() });
                }
                None => writeln!(found.last_mut().unwrap().output, "{line}").unwrap(),
            }
        }
    }
    found
}

#[test]
fn a_block_has_commands_with_their_output() {
    let page = "```console\n$ no\n```\n  ```console run\n  $ a\n  b\n\n  c\n  $ d\n  ```\ne\n```console run\n$ x <<END\ny\nEND\nz\n```\n";
    let step = |command: &str, output: &str| Step { command: command.to_owned(), output: output.to_owned() };
    let expected = [step("a", "b\n\nc\n"), step("d", ""), step("x <<END\ny\nEND", "z\n")];
    assert_eq!(steps(page, &["```console run"]), expected);
}
