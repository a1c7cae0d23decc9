//! The binary. Its arguments, and the name under which it is invoked, select the command.

use std::process::ExitCode;

fn main() -> ExitCode {
    mcm::cli::main(std::env::args_os())
}
