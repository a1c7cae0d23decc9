//! Metrics of driver calls.

use std::time::Duration;

use super::{CounterFamily, GaugeFamily, HistogramFamily, MetricDesc, TextExposition};

const DRIVER_DURATION: MetricDesc<2> = MetricDesc::histogram(
    "mcm_cloud_api_driver_request_duration_seconds",
    "Duration of successful driver calls in seconds.",
    ["provider", "operation"],
);
const DRIVER_FAILED: MetricDesc<3> = MetricDesc::counter(
    "mcm_cloud_api_driver_requests_failed_total",
    "Failed driver calls, by machine code.",
    ["provider", "operation", "error_code"],
);
const REQUESTS: MetricDesc<2> = MetricDesc::counter(
    "mcm_cloud_api_requests_total",
    "Requests that drivers sent to their clouds.",
    ["provider", "service"],
);
const REQUESTS_FAILED: MetricDesc<2> = MetricDesc::counter(
    "mcm_cloud_api_requests_failed_total",
    "Requests to clouds that failed or were not answered.",
    ["provider", "service"],
);
const REQUEST_DURATION: MetricDesc<2> = MetricDesc::histogram(
    "mcm_cloud_api_api_request_duration_seconds",
    "Duration of successful requests to clouds in seconds.",
    ["provider", "service"],
);
const UP: MetricDesc<1> =
    MetricDesc::gauge("mcm_driver_up", "1 if a remote driver can be called, 0 otherwise.", ["provider"]);

/// Observes driver calls and their requests to clouds. As in the reference, failed calls are counted and successful ones timed.
#[derive(Debug)]
pub struct DriverMetrics {
    calls: HistogramFamily<2>,
    calls_failed: CounterFamily<3>,
    requests: CounterFamily<2>,
    requests_failed: CounterFamily<2>,
    request_durations: HistogramFamily<2>,
    up: GaugeFamily<1>,
}

impl Default for DriverMetrics {
    fn default() -> Self {
        Self {
            calls: HistogramFamily::with_default_bounds(),
            calls_failed: CounterFamily::default(),
            requests: CounterFamily::default(),
            requests_failed: CounterFamily::default(),
            request_durations: HistogramFamily::with_default_bounds(),
            up: GaugeFamily::default(),
        }
    }
}

impl DriverMetrics {
    /// A driver call ended. The error is the number of a machine code.
    pub fn observed(&self, provider: &str, operation: &'static str, duration: Duration, result: Result<(), u8>) {
        match result {
            Ok(()) => self.calls.observe([provider, operation], duration.as_secs_f64()),
            Err(code) => self.calls_failed.add([provider, operation, &code.to_string()], 1.0),
        }
    }

    /// A request to a cloud ended.
    pub fn requested(&self, provider: &str, service: &'static str, duration: Duration, is_success: bool) {
        self.requests.add([provider, service], 1.0);
        if is_success {
            self.request_durations.observe([provider, service], duration.as_secs_f64());
        } else {
            self.requests_failed.add([provider, service], 1.0);
        }
    }

    /// Records whether a driver in another process can be reached.
    pub fn reached(&self, provider: &str, is_up: bool) {
        self.up.set([provider], f64::from(u8::from(is_up)));
    }

    pub(super) fn collect(&self, out: &mut TextExposition) {
        self.calls.collect(&DRIVER_DURATION, out);
        self.calls_failed.collect(&DRIVER_FAILED, out);
        self.requests.collect(&REQUESTS, out);
        self.requests_failed.collect(&REQUESTS_FAILED, out);
        self.request_durations.collect(&REQUEST_DURATION, out);
        self.up.collect(&UP, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_number_and_successes_timed() {
        let drivers = DriverMetrics::default();
        drivers.observed("aws", "create_machine", Duration::from_millis(300), Ok(()));
        drivers.observed("aws", "create_machine", Duration::from_secs(9), Err(8));
        drivers.requested("aws", "instance_create", Duration::from_millis(300), true);
        drivers.requested("aws", "instance_create", Duration::from_secs(9), false);
        drivers.reached("gcp", true);
        drivers.reached("aws", true);
        drivers.reached("aws", false);
        let mut out = TextExposition::default();
        drivers.collect(&mut out);
        let text = out.finish();
        for line in [
            r#"mcm_cloud_api_driver_requests_failed_total{provider="aws",operation="create_machine",error_code="8"} 1"#,
            r#"mcm_cloud_api_driver_request_duration_seconds_bucket{provider="aws",operation="create_machine",le="0.25"} 0"#,
            r#"mcm_cloud_api_driver_request_duration_seconds_count{provider="aws",operation="create_machine"} 1"#,
            r#"mcm_cloud_api_requests_total{provider="aws",service="instance_create"} 2"#,
            r#"mcm_cloud_api_requests_failed_total{provider="aws",service="instance_create"} 1"#,
            r#"mcm_cloud_api_api_request_duration_seconds_count{provider="aws",service="instance_create"} 1"#,
            r#"mcm_driver_up{provider="aws"} 0"#,
            r#"mcm_driver_up{provider="gcp"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
