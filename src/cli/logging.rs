//! Logs on standard error.

use std::io::{self, IsTerminal};

use anyhow::{Context, Result};
use tracing_subscriber::{Layer, Registry, filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use super::flags::{LogFormat, LogOptions};

/// The environment variable whose filter overrides `--v`.
const OVERRIDE: &str = "RUST_LOG";

/// Silences kube's client, which logs whole responses that it cannot decode, and they may contain secrets. It returns
/// the same errors.
const SILENT: &str = "kube_client::client=off";

/// Installs the logger. A second call has no effect.
///
/// # Errors
/// `RUST_LOG` is not a valid filter.
pub fn install(options: &LogOptions) -> Result<()> {
    let directives = match std::env::var(OVERRIDE) {
        Ok(text) if !text.is_empty() => text,
        _ => directives(options.verbosity),
    };
    // Not `EnvFilter`: it filters by fields, too, for which every process would hold a regular expression engine.
    let filter: Targets =
        format!("{directives},{SILENT}").parse().with_context(|| format!("read {OVERRIDE}={directives:?}"))?;
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match options.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    if tracing_subscriber::registry().with(lines).with(filter).try_init().is_err() {
        tracing::debug!("logger already installed");
    }
    Ok(())
}

/// Our own modules at the level of klog's number, libraries only with warnings.
fn directives(verbosity: i32) -> String {
    let level = match verbosity {
        ..=2 => "info",
        3..=4 => "debug",
        5.. => "trace",
    };
    format!("warn,mcm={level}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(-1, "info")]
    #[case(0, "info")]
    #[case(2, "info")]
    #[case(3, "debug")]
    #[case(4, "debug")]
    #[case(5, "trace")]
    #[case(10, "trace")]
    fn klog_levels_have_a_counterpart(#[case] verbosity: i32, #[case] level: &str) {
        assert_eq!(directives(verbosity), format!("warn,mcm={level}"));
        assert!(directives(verbosity).parse::<Targets>().is_ok());
    }
}
