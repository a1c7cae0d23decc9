//! Logs: text for people, JSON for machines, always on standard error.

use std::io::{self, IsTerminal};

use tracing::{Subscriber, subscriber::SetGlobalDefaultError};
use tracing_subscriber::{
    EnvFilter,
    filter::ParseError,
    fmt::{MakeWriter, SubscriberBuilder},
};

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One line of words; coloured on a terminal.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not one.
    #[error("the log filter {filter:?} is not valid; write a level such as `info`, or `info,mcm::driver=debug`")]
    Filter {
        /// What was asked for.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// Somebody else was first.
    #[error("logging is already set up")]
    AlreadySet(#[from] SetGlobalDefaultError),
}

/// Starts logging to standard error, for the whole process and once.
///
/// `filter` is a level (`info`) or a list of directives (`info,mcm::driver=debug`).
///
/// # Errors
/// The filter cannot be parsed, or logging was set up before.
pub fn init(format: Format, filter: &str) -> Result<(), TelemetryError> {
    let subscriber = subscriber(format, filter, io::stderr, io::stderr().is_terminal())?;
    tracing::subscriber::set_global_default(subscriber)?;
    Ok(())
}

fn subscriber<W>(
    format: Format,
    filter: &str,
    writer: W,
    colour: bool,
) -> Result<Box<dyn Subscriber + Send + Sync>, TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let builder =
        SubscriberBuilder::default().with_env_filter(filter_of(filter)?).with_writer(writer).with_ansi(colour);
    Ok(match format {
        Format::Text => Box::new(builder.finish()),
        Format::Json => Box::new(builder.json().flatten_event(true).with_current_span(true).finish()),
    })
}

/// The client library reports each answer of 500 and above as an error of its own; whoever made the call reports it too,
/// and knows whether it matters.
fn filter_of(text: &str) -> Result<EnvFilter, TelemetryError> {
    const QUIET: &str = "kube_client::client::builder=off";
    let whole = if text.contains("kube_client") { text.to_owned() } else { format!("{text},{QUIET}") };
    EnvFilter::try_new(whole).map_err(|source| TelemetryError::Filter { filter: text.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, filter: &str, log: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber = subscriber(format, filter, move || writer.clone(), false).unwrap();
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn json_lines_carry_their_fields_at_the_top() {
        let text = logged(Format::Json, "info", || tracing::info!(machine = "m-1", "created"));
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["machine"], &line["message"], &line["level"]),
            (&"m-1".into(), &"created".into(), &"INFO".into())
        );
    }

    #[test]
    fn text_has_no_escape_codes_off_a_terminal() {
        let text = logged(Format::Text, "info", || tracing::warn!("careful"));
        assert!(text.contains("WARN") && !text.contains('\u{1b}'), "{text:?}");
    }

    #[rstest]
    #[case("info", false)]
    #[case("debug", false)]
    #[case("info,kube_client=info", true)]
    fn the_client_library_speaks_only_when_asked_to(#[case] filter: &str, #[case] heard: bool) {
        let text = logged(Format::Text, filter, || tracing::error!(target: "kube_client::client::builder", "failed"));
        assert_eq!(!text.is_empty(), heard);
    }

    #[test]
    fn a_wrong_filter_is_named() {
        let error = filter_of("mcm=loud").unwrap_err();
        assert!(error.to_string().contains("mcm=loud"));
    }
}
