//! Blocks of pages that begin with ```` ```console run ````: each command runs, and prints what follows it.

use std::{env, fs, path::Path, process::Command};

use super::{
    ROOT, links,
    steps::{Step, steps},
};

#[test]
fn console_blocks_print_what_the_pages_show() {
    let program = Path::new(env!("CARGO_BIN_EXE_mcm")).parent().unwrap();
    let path = format!("{}:{}", program.display(), env::var("PATH").unwrap());
    let mut checked = 0;
    for page in links::files(&["md"]) {
        let text = fs::read_to_string(Path::new(ROOT).join(&page)).unwrap();
        for Step { command, output } in steps(&text, &["```console run"]) {
            checked += 1;
            let ran =
                Command::new("bash").args(["-c", &command]).env("PATH", &path).current_dir(ROOT).output().unwrap();
            let printed = String::from_utf8(ran.stdout).unwrap() + &String::from_utf8(ran.stderr).unwrap();
            assert_eq!(printed.trim_end(), output.trim_end(), "{}: {command}", page.display());
        }
    }
    assert!(checked >= 3, "{checked}");
}
