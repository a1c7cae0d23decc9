//! From the arguments of the process to its exit code.

use std::{ffi::OsString, num::NonZero, process::ExitCode};

use anyhow::{Context, Result};

#[cfg(feature = "remote")]
use super::driver::{self, DriverCommand};
use super::{
    adopt::{self, AdoptCommand},
    args::{self, McmCommand},
    check,
    class::{self, ClassCommand},
    completion, convert,
    crd::{self, RenderError},
    dashboard, demo,
    error::{self},
    events,
    exit::{CommandAnswer, NegativeAnswer},
    flags::LogOptions,
    fleet, logging, plan, rollout, run, simulated_cloud, terminal, top, tree,
    verbs::{self, ChangeVerb},
    version, vms, why,
};
use mcm_driver::tls::use_ring;
use mcm_insight::error::UsageError;

/// Executes a command line; the first argument is the program name. Returns the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    use_ring();
    match args::parse_call(args) {
        Ok((command, call)) => match execute(command) {
            Ok(code) => code,
            Err(failure) => error::report(&failure, &call),
        },
        Err(rejection) => rejection.report(),
    }
}

fn execute(command: McmCommand) -> Result<ExitCode> {
    let done = match command {
        McmCommand::Why(options) => return answer(why::run(options)),
        McmCommand::Tree(options) => return answer(tree::run(options)),
        McmCommand::Rollout { command } => return answer(rollout::run(command)),
        McmCommand::Events(options) => return answer(events::run(options)),
        McmCommand::Fleet(options) => return answer(fleet::run(options)),
        McmCommand::Top(options) => return answer(top::run(options)),
        McmCommand::Vms(options) => return answer(vms::run(*options)),
        McmCommand::Scale(options) => return answer(verbs::run(options.verb())),
        McmCommand::Freeze(options) => return answer(verbs::run(options.verb(ChangeVerb::Freeze))),
        McmCommand::Unfreeze(options) => return answer(verbs::run(options.verb(ChangeVerb::Unfreeze))),
        McmCommand::Drain { command } => return answer(verbs::run(command.verb())),
        McmCommand::Machine { command } => return answer(verbs::run(command.verb())),
        McmCommand::Check(options) => return answer(check::run(options, args::go_flags)),
        McmCommand::Plan(options) => return answer(plan::run(*options)),
        McmCommand::Run(options) => serve(&options.generic.log.clone(), run::run(*options)),
        McmCommand::MachineControllerManager(options) => {
            serve(&options.generic.log.clone(), run::controller_manager(*options))
        }
        McmCommand::MachineController(options) => {
            serve(&options.generic.log.clone(), run::machine_controller(*options))
        }
        McmCommand::CapiManager(options) => serve(&options.log.clone(), run::capi_manager(*options)),
        McmCommand::CapiExtension(options) => serve(&options.log.clone(), run::capi_extension(options)),
        McmCommand::Presence(options) => serve(&options.log.clone(), run::presence(options)),
        McmCommand::SimulatedCloud(options) => serve(&options.log.clone(), simulated_cloud::run(options)),
        McmCommand::Demo(options) => block_on(demo::run(options)),
        McmCommand::Dashboard(options) => block_on(dashboard::run(options)),
        McmCommand::Convert(options) => print(&convert::run(&options)?),
        McmCommand::Adopt { command } => match command {
            AdoptCommand::Plan(options) => {
                let (text, is_possible) = block_on(adopt::plan(*options))?;
                print(&text)?;
                if is_possible {
                    Ok(())
                } else {
                    Err(NegativeAnswer("a check failed, so nothing would be started".to_owned()).into())
                }
            }
            AdoptCommand::Apply(options) => block_on(adopt::apply(*options)),
            AdoptCommand::Status(options) => print(&block_on(adopt::status(*options))?),
            AdoptCommand::Abort(options) => block_on(adopt::abort(*options)),
        },
        McmCommand::Class { command: ClassCommand::Check(options) } => {
            let report = block_on(async { Ok(class::check(*options).await?) })?;
            print(&report.text)?;
            Ok(report.verdict()?)
        }
        McmCommand::Class { command: ClassCommand::Complete(options) } => {
            let report = block_on(async { Ok(class::complete(*options).await?) })?;
            print(&report.text)?;
            Ok(report.verdict()?)
        }
        McmCommand::Crd { stand_in: true, .. } => print(&crd::render_stand_in()?),
        McmCommand::Crd { cluster_api: true, .. } => print(&crd::render_cluster_api()?),
        McmCommand::Crd { kind, .. } => print(&crd::render(kind.as_deref()).map_err(misspelled)?),
        #[cfg(feature = "remote")]
        McmCommand::Driver { command } => match command {
            DriverCommand::Serve(options) => serve(&options.log.clone(), driver::serve(*options)),
            DriverCommand::Test(options) => {
                let report = block_on(async { Ok(driver::test(*options).await?) })?;
                print(&report.text)?;
                Ok(report.verdict()?)
            }
        },
        McmCommand::Completion { shell } => print(&completion::script(shell)),
        McmCommand::Complete { words } => print(&block_on(async { Ok(completion::complete(&words).await) })?),
        McmCommand::Man { folder } => {
            args::man(&folder).with_context(|| format!("write manual pages to {}", folder.display()))
        }
        McmCommand::Version => print(&version::text()),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Prints an answer, and returns its exit code.
fn answer(work: impl Future<Output = Result<CommandAnswer>>) -> Result<ExitCode> {
    let answer = block_on(work)?;
    print(&answer.text)?;
    Ok(answer.exit.into())
}

/// A kind that was misspelled is a mistake on the command line.
fn misspelled(error: RenderError) -> anyhow::Error {
    let RenderError::UnknownKind { alike, .. } = &error else { return error.into() };
    let hint = alike.as_ref().map_or_else(|| "see mcm crd --help".to_owned(), |kind| format!("did you mean {kind}?"));
    UsageError { message: error.to_string(), hint }.into()
}

fn serve(log: &LogOptions, work: impl Future<Output = Result<()>>) -> Result<()> {
    logging::install(log)?;
    block_on(work)
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(worker_threads())
        .enable_all()
        .build()
        .context("start the async runtime")?;
    let outcome = runtime.block_on(work);
    // A pending name resolution must not delay the exit.
    runtime.shutdown_background();
    outcome
}

/// A manager waits for API servers: more threads cost memory and CPU and save no time (docs/benchmark.md).
/// `TOKIO_WORKER_THREADS` overrides.
fn worker_threads() -> usize {
    const CORES_PER_THREAD: usize = 4;
    const MOST: usize = 4;
    let chosen = std::env::var("TOKIO_WORKER_THREADS").ok().and_then(|text| text.parse().ok()).filter(|&n| n > 0);
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    chosen.unwrap_or((cores / CORES_PER_THREAD).clamp(1, MOST))
}

/// Writes to standard output. A closed pipe (`mcm crd | head`) is not an error.
fn print(text: &str) -> Result<()> {
    terminal::print(text).map(drop)
}
