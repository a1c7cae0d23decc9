//! Measures the requests that a driver sends to its cloud.

use std::{future::Future, sync::Arc};

use tokio::time::Instant;

use crate::DriverObserver;

/// Reports each request of a driver to an [`Observer`].
#[derive(Clone)]
pub struct RequestReporter {
    provider: &'static str,
    observer: Arc<dyn DriverObserver>,
}

impl RequestReporter {
    /// The counters of the driver with this name.
    pub fn for_provider(provider: &'static str, observer: &Arc<dyn DriverObserver>) -> Self {
        Self { provider, observer: Arc::clone(observer) }
    }

    /// Sends a request. `service` names its purpose, as the drivers of the reference do in their metrics.
    pub async fn measure<T, E>(
        &self,
        service: &'static str,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut sent = MeteredRequest { requests: self, service, start: Instant::now(), is_answered: false };
        let result = request.await;
        sent.is_answered = result.is_ok();
        result
    }
}

/// Reports when dropped: a cancelled request also counts as failed.
struct MeteredRequest<'a> {
    requests: &'a RequestReporter,
    service: &'static str,
    start: Instant,
    is_answered: bool,
}

impl Drop for MeteredRequest<'_> {
    fn drop(&mut self) {
        let RequestReporter { provider, observer } = self.requests;
        observer.requested(provider, self.service, self.start.elapsed(), self.is_answered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, DriverOperation};
    use parking_lot::Mutex;
    use std::time::Duration;
    use tokio::time::{sleep, timeout};

    #[derive(Default)]
    struct Recorder(Mutex<Vec<(String, String, u64, bool)>>);

    impl DriverObserver for Recorder {
        fn observed(&self, _: &str, _: DriverOperation, _: Duration, _: Result<(), Code>) {}

        fn requested(&self, provider: &str, service: &'static str, duration: Duration, is_success: bool) {
            self.0.lock().push((provider.to_owned(), service.to_owned(), duration.as_secs(), is_success));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_is_reported_with_its_outcome_also_one_that_is_given_up() {
        let recorder = Arc::new(Recorder::default());
        let observer: Arc<dyn DriverObserver> = Arc::<Recorder>::clone(&recorder);
        let requests = RequestReporter::for_provider("cloud", &observer);
        let taking = async |seconds, outcome: Result<(), ()>| {
            sleep(Duration::from_secs(seconds)).await;
            outcome
        };
        requests.measure("get", taking(1, Ok(()))).await.unwrap();
        requests.measure("list", taking(2, Err(()))).await.unwrap_err();
        timeout(Duration::from_secs(3), requests.measure("run", taking(60, Ok(())))).await.unwrap_err();
        let seen = recorder.0.lock().clone();
        let of = |service: &str, seconds, is_success| ("cloud".to_owned(), service.to_owned(), seconds, is_success);
        assert_eq!(seen, [of("get", 1, true), of("list", 2, false), of("run", 3, false)]);
    }
}
