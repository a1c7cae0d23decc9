//! Blocks of pages that begin with ```` ```console run ````: each command runs, and prints what follows it.

use std::{env, fmt::Write as _, fs, path::Path, process::Command};

use super::{ROOT, links};

/// A command of a page, and the output below it.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    output: String,
}

fn steps(page: &str) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    for block in page.split("```console run\n").skip(1) {
        for line in block.lines().take_while(|line| *line != "```") {
            match line.strip_prefix("$ ") {
                Some(command) => found.push(Step { command: command.to_owned(), output: String::new() }),
                None => writeln!(found.last_mut().unwrap().output, "{line}").unwrap(),
            }
        }
    }
    found
}

#[test]
fn console_blocks_print_what_the_pages_show() {
    let program = Path::new(env!("CARGO_BIN_EXE_mcm")).parent().unwrap();
    let path = format!("{}:{}", program.display(), env::var("PATH").unwrap());
    let mut checked = 0;
    for page in links::files(&["md"]) {
        for Step { command, output } in steps(&fs::read_to_string(Path::new(ROOT).join(&page)).unwrap()) {
            checked += 1;
            let ran =
                Command::new("bash").args(["-c", &command]).env("PATH", &path).current_dir(ROOT).output().unwrap();
            let printed = String::from_utf8(ran.stdout).unwrap() + &String::from_utf8(ran.stderr).unwrap();
            assert_eq!(printed.trim_end(), output.trim_end(), "{}: {command}", page.display());
        }
    }
    assert!(checked >= 3, "{checked}");
}

#[test]
fn a_block_has_commands_with_their_output() {
    let page = "```console\n$ no\n```\n```console run\n$ a\nb\n\nc\n$ d\n```\ne\n";
    let step = |command: &str, output: &str| Step { command: command.to_owned(), output: output.to_owned() };
    assert_eq!(steps(page), [step("a", "b\n\nc\n"), step("d", "")]);
}
