//! Logs on standard error.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt::Debug,
    io::{self, IsTerminal},
    panic::PanicHookInfo,
};

use anyhow::{Context, Result};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer, Registry,
    field::RecordFields,
    filter::Targets,
    fmt::{
        self, FmtContext, FormatEvent, FormatFields, MakeWriter,
        format::{Format, Json, Writer},
    },
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use super::flags::{LogFormat, LogOptions};
use mcm_insight::terminal::harmless;
use mcm_runtime::panics;

/// The environment variable whose filter overrides `--v`.
const OVERRIDE: &str = "RUST_LOG";

/// The field with the cell of a line, in a process with several cells.
const CELL: &str = "cell";

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
    let lines = lines(options.format, io::stderr, has_colours());
    match tracing_subscriber::registry().with(lines).with(filter).try_init() {
        Ok(()) => std::panic::set_hook(Box::new(log_panic)),
        Err(_) => tracing::debug!("logger already installed"),
    }
    Ok(())
}

/// Writes each event as a line.
fn lines<W>(format: LogFormat, writer: W, has_colours: bool) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = fmt::layer::<Registry>().with_writer(writer).with_ansi(has_colours);
    match format {
        LogFormat::Text => lines.fmt_fields(LineFields).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).map_event_format(JsonLine).boxed(),
        LogFormat::Klog => lines.with_ansi(false).fmt_fields(LineFields).event_format(KlogLine).boxed(),
    }
}

/// Formats the fields of an event, and adds the cell of the current task unless it is one of them.
struct LineFields;

impl<'w> FormatFields<'w> for LineFields {
    fn format_fields<R: RecordFields>(&self, mut out: Writer<'w>, fields: R) -> std::fmt::Result {
        let mut visitor = FieldWriter { out: &mut out, has_cell: false, written: Ok(()) };
        fields.record(&mut visitor);
        let FieldWriter { has_cell, written, .. } = visitor;
        written?;
        match panics::cell() {
            cell if has_cell || cell.is_empty() => Ok(()),
            cell => write_field(&mut out, CELL, &cell),
        }
    }
}

struct FieldWriter<'a, 'w> {
    out: &'a mut Writer<'w>,
    has_cell: bool,
    written: std::fmt::Result,
}

impl Visit for FieldWriter<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.has_cell |= field.name() == CELL;
        self.written = self.written.and_then(|()| write_field(self.out, field.name(), value));
    }
}

/// Formats an event as a JSON object, and adds the cell of the current task unless the event names it.
struct JsonLine(Format<Json>);

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, fields: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        let cell = panics::cell();
        if cell.is_empty() || event.metadata().fields().field(CELL).is_some() {
            return self.0.format_event(fields, out, event);
        }
        let mut line = String::new();
        self.0.format_event(fields, Writer::new(&mut line), event)?;
        let line = line.trim_end().strip_suffix('}').ok_or(std::fmt::Error)?;
        writeln!(out, "{line},\"{CELL}\":{}}}", Value::from(&*cell))
    }
}

/// Formats an event as klog does: `Lmmdd hh:mm:ss.uuuuuu process source:line] message`. The log pipeline of Gardener parses these
/// lines. Debug and trace have the severity of info, as the levels of `--v` have in klog.
struct KlogLine;

impl<S, N> FormatEvent<S, N> for KlogLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, fields: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        let about = event.metadata();
        let severity = match *about.level() {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let now = Timestamp::now().to_zoned(TimeZone::UTC).strftime("%m%d %H:%M:%S%.6f");
        let source = about.file().map_or(about.target(), |path| path.rsplit('/').next().unwrap_or(path));
        write!(out, "{severity}{now} {:>7} {source}:{}] ", std::process::id(), about.line().unwrap_or(1))?;
        fields.format_fields(out.by_ref(), event)?;
        writeln!(out)
    }
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
fn write_field(out: &mut Writer<'_>, name: &str, value: &dyn Debug) -> std::fmt::Result {
    let text = format!("{value:?}");
    let is_plain = !text.contains(char::is_control);
    match name {
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
    use futures::FutureExt;
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

    fn written(format: LogFormat, events: impl FnOnce()) -> Vec<String> {
        let written = Lines::default();
        let writer = written.clone();
        let layer = lines(format, move || writer.clone(), false);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), events);
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn fields_can_be_parsed_and_empty_ones_are_left_out() {
        let until: Option<String> = None;
        let lines = written(LogFormat::Text, || {
            let object = "deployment demo/pool";
            tracing::info!(cell = "", object = %object, machine = %"demo/pool-1", name = "a b", ?until, n = 3, "scaled");
        });
        let expected = r#"scaled object="deployment demo/pool" machine=demo/pool-1 name="a b" n=3"#;
        assert!(lines[0].ends_with(expected), "{lines:?}");
    }

    #[test]
    fn a_text_of_an_object_neither_begins_a_line_nor_controls_the_terminal() {
        let lines = written(LogFormat::Text, || {
            let text = "\"quota\"\x1b[2J\nERROR mcm: forged";
            tracing::info!(error = %text, machine = %"a\nb", "failed: {text}");
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(!lines[0].contains(char::is_control), "{lines:?}");
    }

    #[rstest]
    #[case(LogFormat::Text, r#"scaled n=3 cell="shoot--a""#, r#"stopped cell="shoot--a""#)]
    #[case(LogFormat::Klog, r#"scaled n=3 cell="shoot--a""#, r#"stopped cell="shoot--a""#)]
    #[case(LogFormat::Json, r#","cell":"shoot--a"}"#, r#""message":"stopped","cell":"shoot--a""#)]
    fn each_line_of_a_cell_names_it_once(#[case] format: LogFormat, #[case] added: &str, #[case] given: &str) {
        let lines = written(format, || {
            let work = async {
                tracing::info!(n = 3, "scaled");
                tracing::info!(cell = "shoot--a", "stopped");
            };
            panics::of_cell("shoot--a".into(), work).now_or_never().unwrap();
            tracing::info!("the process ends");
        });
        assert!(lines[0].ends_with(added), "{lines:?}");
        assert!(lines[1].contains(given), "{lines:?}");
        let namings: Vec<usize> = lines.iter().map(|line| line.matches("shoot--a").count()).collect();
        assert_eq!(namings, [1, 1, 0], "{lines:?}");
        if format == LogFormat::Json {
            let line: Value = serde_json::from_str(&lines[0]).unwrap();
            assert_eq!((&line["n"], &line["cell"]), (&Value::from(3), &Value::from("shoot--a")));
        }
    }

    /// The expression and the time format of Gardener's fluent-bit parser for machine-controller-manager, and for the containers of
    /// provider extensions.
    const OF_GARDENER: &str = r"^(?<severity>\w)(?<time>\d{4} [^\s]*)\s+(?<pid>\d+)\s+(?<source>[^ \]]+)\] (?<log>.*)$";

    #[test]
    fn the_pipeline_of_gardener_parses_each_klog_line() {
        let parser = regex::Regex::new(OF_GARDENER).unwrap();
        let lines = written(LogFormat::Klog, || {
            tracing::error!(error = %"a]\nE0101 00:00:00.0 1 x:1] forged", "write failed");
            tracing::warn!(machine = "demo/pool-1", "");
            tracing::info!("scaled: 2] of 3");
            tracing::debug!(kind = "Eviction", "waiting");
            tracing::trace!("raw");
        });
        assert_eq!(lines.len(), 5, "{lines:?}");
        let found: Vec<_> =
            lines.iter().map(|line| parser.captures(line).unwrap_or_else(|| panic!("{line}"))).collect();
        let severities: Vec<&str> = found.iter().map(|line| line.name("severity").unwrap().as_str()).collect();
        assert_eq!(severities, ["E", "W", "I", "I", "I"]);
        let year = Timestamp::now().strftime("%Y").to_string();
        for line in &found {
            let time = line.name("time").unwrap().as_str();
            let time = jiff::civil::DateTime::strptime("%Y%m%d %H:%M:%S%.f", format!("{year}{time}")).unwrap();
            let age = Timestamp::now().duration_since(time.to_zoned(TimeZone::UTC).unwrap().timestamp());
            assert!(age.as_secs() < 3600, "{time}");
            assert_eq!(line.name("pid").unwrap().as_str(), std::process::id().to_string());
            assert!(line.name("source").unwrap().as_str().starts_with("logging.rs:"), "{line:?}");
        }
        assert_eq!(found[2].name("log").unwrap().as_str(), "scaled: 2] of 3");
        assert_eq!(found[3].name("log").unwrap().as_str(), "waiting kind=\"Eviction\"");
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
