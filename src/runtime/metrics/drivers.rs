//! Calls of drivers, and of the clouds below them.

use std::time::Duration;

use super::{Counters, Desc, Exposition, Histograms};
use crate::driver::Code;

/// Names of the driver's methods in metrics, as the reference's drivers write them.
pub mod operation {
    /// `Driver::create`.
    pub const CREATE: &str = "create_machine";
    /// `Driver::initialize`.
    pub const INITIALIZE: &str = "initialize_machine";
    /// `Driver::delete`.
    pub const DELETE: &str = "delete_machine";
    /// `Driver::status`.
    pub const STATUS: &str = "get_machine_status";
    /// `Driver::list`.
    pub const LIST: &str = "list_machine";
    /// `Driver::volume_ids`.
    pub const VOLUME_IDS: &str = "get_volume_ids";
}

const DRIVER_DURATION: Desc<2> = Desc::histogram(
    "mcm_cloud_api_driver_request_duration_seconds",
    "Seconds that a successful call of the driver took.",
    ["provider", "operation"],
);
const DRIVER_FAILED: Desc<3> = Desc::counter(
    "mcm_cloud_api_driver_requests_failed_total",
    "Calls of the driver that failed, by machine code.",
    ["provider", "operation", "error_code"],
);
const REQUESTS: Desc<2> =
    Desc::counter("mcm_cloud_api_requests_total", "Calls of the cloud's API that succeeded.", ["provider", "service"]);
const REQUESTS_FAILED: Desc<2> = Desc::counter(
    "mcm_cloud_api_requests_failed_total",
    "Calls of the cloud's API that failed.",
    ["provider", "service"],
);
const REQUEST_DURATION: Desc<2> = Desc::histogram(
    "mcm_cloud_api_api_request_duration_seconds",
    "Seconds that a successful call of the cloud's API took.",
    ["provider", "service"],
);

/// Observes drivers. As in the reference, failed calls are counted and successful ones timed.
#[derive(Debug)]
pub struct DriverMetrics {
    calls: Histograms<2>,
    calls_failed: Counters<3>,
    requests: Counters<2>,
    requests_failed: Counters<2>,
    request_durations: Histograms<2>,
}

impl Default for DriverMetrics {
    fn default() -> Self {
        Self {
            calls: Histograms::with_default_bounds(),
            calls_failed: Counters::default(),
            requests: Counters::default(),
            requests_failed: Counters::default(),
            request_durations: Histograms::with_default_bounds(),
        }
    }
}

impl DriverMetrics {
    /// A call of a driver ended; see [`operation`] for the names. The error is a machine code by name, and is counted under
    /// its number.
    pub fn observed(&self, provider: &str, operation: &'static str, duration: Duration, result: Result<(), &str>) {
        match result {
            Ok(()) => self.calls.observe([provider, operation], duration.as_secs_f64()),
            Err(code) => {
                let number = code.parse::<Code>().unwrap_or(Code::Unknown) as u8;
                self.calls_failed.add([provider, operation, &number.to_string()], 1.0);
            }
        }
    }

    /// A driver's call of the cloud's own API ended.
    pub fn requested(&self, provider: &str, service: &'static str, duration: Duration, succeeded: bool) {
        if succeeded {
            self.requests.add([provider, service], 1.0);
            self.request_durations.observe([provider, service], duration.as_secs_f64());
        } else {
            self.requests_failed.add([provider, service], 1.0);
        }
    }

    pub(super) fn collect(&self, out: &mut Exposition) {
        self.calls.collect(&DRIVER_DURATION, out);
        self.calls_failed.collect(&DRIVER_FAILED, out);
        self.requests.collect(&REQUESTS, out);
        self.requests_failed.collect(&REQUESTS_FAILED, out);
        self.request_durations.collect(&REQUEST_DURATION, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_number_and_successes_timed() {
        let drivers = DriverMetrics::default();
        drivers.observed("aws", operation::CREATE, Duration::from_millis(300), Ok(()));
        drivers.observed("aws", operation::CREATE, Duration::from_secs(9), Err("ResourceExhausted"));
        let mut out = Exposition::default();
        drivers.collect(&mut out);
        let text = out.finish();
        for line in [
            r#"mcm_cloud_api_driver_requests_failed_total{provider="aws",operation="create_machine",error_code="8"} 1"#,
            r#"mcm_cloud_api_driver_request_duration_seconds_bucket{provider="aws",operation="create_machine",le="0.25"} 0"#,
            r#"mcm_cloud_api_driver_request_duration_seconds_count{provider="aws",operation="create_machine"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
