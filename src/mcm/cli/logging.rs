//! Logs on standard error.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt::Debug,
    io::{self, IsTerminal},
    panic::PanicHookInfo,
};

use anyhow::{Context, Result};
use tracing::field::Field;
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    fmt::{
        self,
        format::{Writer, debug_fn},
    },
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use super::flags::{LogFormat, LogOptions};
use mcm_insight::terminal::harmless;

/// The environment variable whose filter overrides `--v`.
const OVERRIDE: &str = "RUST_LOG";

/// Silences libraries that log what may contain secrets: kube's client whole responses that it cannot decode, of which it also
/// returns the errors, and AWS's SDK whole requests with user data and tokens.
const SILENT: &str = "kube_client::client=off,aws_sigv4=info,aws_sigv4::http_request::sign=info,aws_smithy_runtime=info,\
                      aws_smithy_runtime::client::orchestrator=info";

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
    let filter = filter(&directives).with_context(|| format!("read {OVERRIDE}={directives:?}"))?;
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(has_colours());
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match options.format {
        LogFormat::Text => lines.fmt_fields(debug_fn(write_field)).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    match tracing_subscriber::registry().with(lines).with(filter).try_init() {
        Ok(()) => std::panic::set_hook(Box::new(log_panic)),
        Err(_) => tracing::debug!("logger already installed"),
    }
    Ok(())
}

fn filter(directives: &str) -> Result<Targets> {
    Ok(format!("{directives},{SILENT}").parse()?)
}

/// <https://no-color.org>
fn has_colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A panic is one line like all others.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let text = panic.payload_as_str().unwrap_or("a value that is no text");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => tracing::error!(%backtrace, "panicked at {place}: {text}"),
        _ => tracing::error!("panicked at {place}: {text}"),
    }
}

/// Writes the message, and fields as `name=value`: values with spaces in quotes, empty ones not at all. Texts of objects neither
/// begin a line nor control a terminal.
fn write_field(out: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let text = format!("{value:?}");
    let is_plain = !text.contains(char::is_control);
    match field.name() {
        "message" if is_plain => out.write_str(&text),
        "message" => out.write_str(&harmless(&text).replace('\n', "\\n")),
        _ if matches!(text.as_str(), "" | "\"\"" | "None") => Ok(()),
        name if is_plain && (text.starts_with('"') || !text.contains([' ', '"', '='])) => write!(out, " {name}={text}"),
        name => write!(out, " {name}={text:?}"),
    }
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
    use std::sync::{Arc, Mutex};

    use super::*;
    use rstest::rstest;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn fields_can_be_parsed_and_empty_ones_are_left_out() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer()
            .without_time()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .fmt_fields(debug_fn(write_field));
        let until: Option<String> = None;
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let object = "deployment demo/pool";
            tracing::info!(cell = "", object = %object, machine = %"demo/pool-1", name = "a b", ?until, n = 3, "scaled");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let expected = r#"scaled object="deployment demo/pool" machine=demo/pool-1 name="a b" n=3"#;
        assert!(text.trim_end().ends_with(expected), "{text}");
    }

    #[test]
    fn a_text_of_an_object_neither_begins_a_line_nor_controls_the_terminal() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer().without_time().with_ansi(false).with_writer(move || writer.clone());
        let layer = layer.fmt_fields(debug_fn(write_field));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let text = "\"quota\"\x1b[2J\nERROR mcm: forged";
            tracing::info!(error = %text, machine = %"a\nb", "failed: {text}");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.trim_end().contains(char::is_control), "{text}");
    }

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

    #[rstest]
    #[case::the_product("mcm::controllers::machine")]
    #[case::the_interface("mcm_driver::guard")]
    #[case::a_driver("mcm_driver_metal_stack::calls")]
    #[case::the_simulated_cloud("mcm_simulated_cloud::kubelet::keeper")]
    fn all_our_crates_have_the_level(#[case] target: &str) {
        assert!(filter(&directives(3)).unwrap().would_enable(target, &tracing::Level::DEBUG));
        assert!(!filter(&directives(2)).unwrap().would_enable(target, &tracing::Level::DEBUG));
    }

    #[rstest]
    #[case("trace")]
    #[case("warn,aws_smithy_runtime=trace")]
    #[case("aws_smithy_runtime::client::orchestrator=trace,aws_sigv4::http_request::sign=trace")]
    fn requests_with_secrets_are_not_logged(#[case] directives: &str) {
        let filter = filter(directives).unwrap();
        for target in
            ["aws_smithy_runtime::client::orchestrator", "aws_sigv4::http_request::sign", "kube_client::client"]
        {
            assert!(!filter.would_enable(target, &tracing::Level::TRACE), "{target}");
        }
    }
}
