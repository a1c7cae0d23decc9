//! SIGTERM and SIGINT: the first starts a graceful shutdown, the second ends the process immediately.

use std::{io, time::Duration};

use futures::{Stream, StreamExt, stream};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long running reconciles may take after a signal.
pub const WORK: Duration = Duration::from_secs(20);
/// How long the release of a lease, or of those of all namespaces, may take.
pub const LEASE: Duration = Duration::from_secs(3);
/// How long the last events may take.
pub const EVENTS: Duration = Duration::from_secs(2);
/// How long open connections to the endpoints may take.
pub const ENDPOINTS: Duration = Duration::from_secs(1);
/// Kubernetes' default `terminationGracePeriodSeconds`.
const GRACE_PERIOD: Duration = Duration::from_secs(30);
const _: () = {
    let sum = WORK.as_secs() + 2 * LEASE.as_secs() + EVENTS.as_secs() + ENDPOINTS.as_secs();
    assert!(sum < GRACE_PERIOD.as_secs(), "the sum of all periods must be below the grace period");
};

/// Exit code after a second signal.
const IMPATIENT: i32 = 1;

/// A token that is cancelled by the first SIGTERM or SIGINT; a second one ends the process with exit code 1.
///
/// # Errors
/// The signal handlers cannot be installed.
pub fn on_signal() -> io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let signals = stream::select(
        arrivals(SignalKind::terminate(), "SIGTERM")?.boxed(),
        arrivals(SignalKind::interrupt(), "SIGINT")?.boxed(),
    );
    let asked = token.clone();
    tokio::spawn(async move {
        obey(signals, asked).await;
        std::process::exit(IMPATIENT);
    });
    Ok(token)
}

fn arrivals(kind: SignalKind, name: &'static str) -> io::Result<impl Stream<Item = &'static str> + Send> {
    let listener = signal(kind)?;
    Ok(stream::unfold(listener, move |mut listener| async move { listener.recv().await.map(|()| (name, listener)) }))
}

/// Cancels at the first signal, returns at the second.
async fn obey(mut signals: impl Stream<Item = &'static str> + Unpin, token: CancellationToken) {
    if let Some(name) = signals.next().await {
        info!(signal = name, "shutting down; a second signal ends the process immediately");
        token.cancel();
    }
    match signals.next().await {
        Some(name) => warn!(signal = name, "second signal, ending immediately"),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;

    use super::*;

    #[tokio::test]
    async fn the_first_signal_asks_and_the_second_ends() {
        let (sender, signals) = mpsc::unbounded();
        let token = CancellationToken::new();
        let ended = tokio::spawn(obey(signals, token.clone()));

        sender.unbounded_send("SIGTERM").unwrap();
        token.cancelled().await;
        tokio::task::yield_now().await;
        assert!(!ended.is_finished(), "one signal must leave time for an orderly end");

        sender.unbounded_send("SIGINT").unwrap();
        ended.await.unwrap();
    }
}
