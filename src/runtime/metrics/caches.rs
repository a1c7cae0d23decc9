//! Metrics of caches: age and trust. With many clusters only caches in trouble have series.

use std::collections::BTreeSet;

use super::{MetricCollector, MetricDesc, SeriesGroup, TextExposition};
use crate::trust::{CacheRegistry, MonitoredCache};

const AGE: MetricDesc<2> = MetricDesc::gauge(
    "mcm_cache_age_seconds",
    "Seconds since the last message of the API server to a cache.",
    ["kind", "cluster"],
);
const TRUSTED: MetricDesc<2> = MetricDesc::gauge(
    "mcm_cache_trusted",
    "1 if a cache is trusted, 0 if it may be stale, so that a missing object counts as unknown.",
    ["kind", "cluster"],
);

const UNREADABLE: MetricDesc<2> = MetricDesc::gauge(
    "mcm_cache_unreadable_objects",
    "Objects of a cache that cannot be decoded and are left alone. The log and the event Unreadable name them.",
    ["kind", "cluster"],
);

const OVER_LIMIT: MetricDesc<2> = MetricDesc::gauge(
    "mcm_cache_over_limit",
    "1 if the API server sends more than a cache may hold, so that the cache is not trusted, otherwise 0.",
    ["kind", "cluster"],
);

impl MetricCollector for CacheRegistry {
    fn collect(&self, out: &mut TextExposition) {
        for (cluster, cache) in self.all() {
            collect_cache(&cluster, &*cache, out);
        }
    }

    fn clusters(&self) -> usize {
        self.all().into_iter().map(|(cluster, _)| cluster).collect::<BTreeSet<_>>().len()
    }
}

fn collect_cache(cluster: &str, cache: &dyn MonitoredCache, out: &mut TextExposition) {
    let (kind, is_trusted, is_over_limit) = (cache.plural(), cache.trust().is_trusted(), cache.is_over_limit());
    let unreadable = u32::try_from(cache.unreadable()).unwrap_or(u32::MAX);
    let is_in_trouble = !is_trusted || is_over_limit || unreadable > 0;
    let labels = [kind.as_str(), cluster];
    out.details_unless(is_in_trouble, SeriesGroup::Clusters, |out| {
        if let Some(age) = cache.age() {
            out.sample(&AGE, labels, age.as_secs_f64());
        }
        out.sample(&TRUSTED, labels, f64::from(u8::from(is_trusted)));
        out.sample(&UNREADABLE, labels, f64::from(unreadable));
        out.sample(&OVER_LIMIT, labels, f64::from(u8::from(is_over_limit)));
    });
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::trust::{CacheNeed, CacheTrust};

    struct Silent;

    struct Healthy;

    impl MonitoredCache for Healthy {
        fn plural(&self) -> String {
            "nodes".to_owned()
        }

        fn trust(&self) -> CacheTrust {
            CacheTrust::Trusted
        }

        fn age(&self) -> Option<Duration> {
            Some(Duration::from_secs(1))
        }

        fn is_over_limit(&self) -> bool {
            false
        }
    }

    impl MonitoredCache for Silent {
        fn plural(&self) -> String {
            "nodes".to_owned()
        }

        fn trust(&self) -> CacheTrust {
            CacheTrust::Unknown { why: "not read yet".to_owned() }
        }

        fn age(&self) -> Option<Duration> {
            Some(Duration::from_millis(1500))
        }

        fn unreadable(&self) -> usize {
            3
        }

        fn is_over_limit(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_cache_is_told_of_until_it_is_dropped() {
        let (caches, cache) = (CacheRegistry::default(), Arc::new(Silent));
        caches.add("target", &cache, CacheNeed::Required);
        assert_eq!(caches.problems(), ["nodes of target: not read yet"]);
        let mut out = TextExposition::default();
        caches.collect(&mut out);
        let text = out.finish();
        assert!(text.contains("mcm_cache_age_seconds{kind=\"nodes\",cluster=\"target\"} 1.5\n"), "{text}");
        assert!(text.contains("mcm_cache_trusted{kind=\"nodes\",cluster=\"target\"} 0\n"), "{text}");
        assert!(text.contains("mcm_cache_unreadable_objects{kind=\"nodes\",cluster=\"target\"} 3\n"), "{text}");
        assert!(text.contains("mcm_cache_over_limit{kind=\"nodes\",cluster=\"target\"} 1\n"), "{text}");
        drop(cache);
        assert!(caches.problems().is_empty());
    }

    #[test]
    fn with_aggregates_only_caches_in_trouble_have_series() {
        let (caches, silent, healthy) = (CacheRegistry::default(), Arc::new(Silent), Arc::new(Healthy));
        caches.add("a/target", &silent, CacheNeed::Required);
        caches.add("b/target", &healthy, CacheNeed::Required);
        assert_eq!(caches.clusters(), 2);
        let mut out = TextExposition::aggregating([SeriesGroup::Clusters]);
        caches.collect(&mut out);
        assert_eq!(out.omitted().collect::<Vec<_>>(), [(SeriesGroup::Clusters, 4)]);
        let text = out.finish();
        assert!(text.contains("mcm_cache_trusted{kind=\"nodes\",cluster=\"a/target\"} 0\n"), "{text}");
        assert!(!text.contains("b/target"), "{text}");
    }
}
