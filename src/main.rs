//! The one binary: what it does is decided by its arguments and by the name it is called by.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcm::cli::main(std::env::args_os())
}
