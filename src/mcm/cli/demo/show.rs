//! Acts, one after the other on one screen. Each waits for a state and reports its duration.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use super::{
    scene::LiveObjects,
    screen::DemoScreen,
    shown::DemoView,
    summary::{ActResult, DemoSummary},
};

/// Time limit of an act.
const LIMIT: Duration = Duration::from_secs(150);
/// The frame of an act that is recorded.
const RECORDED_FRAME: u32 = 12;

/// A progress bar: how many machines are to be new, and how many are.
pub type ActProgress<'p, P> = (u64, &'p dyn Fn(&P) -> u64);

/// A demo that is shown.
pub struct DemoShow<'s, P> {
    screen: &'s DemoScreen,
    scene: LiveObjects<P>,
    acts: Vec<ActResult>,
    start: Instant,
}

impl<'s, P: DemoView> DemoShow<'s, P> {
    /// Begins.
    #[must_use]
    pub fn new(screen: &'s DemoScreen, scene: LiveObjects<P>) -> Self {
        Self { screen, scene, acts: Vec::new(), start: Instant::now() }
    }

    /// The current objects.
    #[must_use]
    pub fn props(&self) -> P {
        self.scene.props()
    }

    /// Prints a text above the table.
    pub fn say(&self, text: &str) {
        self.screen.say(text);
    }

    /// Plays an act, and shows its action until that is done and its goal is reached. `result` describes what happened.
    ///
    /// # Errors
    /// The action of the act fails, or the goal is not reached in time.
    pub async fn act<T>(
        &mut self,
        title: &str,
        doing: impl Future<Output = Result<T>>,
        reached: impl Fn(&P) -> bool,
        progress: Option<ActProgress<'_, P>>,
        result: &str,
    ) -> Result<T> {
        let start = Instant::now();
        let mut picture = self.screen.picture(title, progress.map(|(steps, _)| steps));
        let mut frames = 0u32;
        let name = format!("act-{}", self.acts.len() + 1);
        let show = |props: &P| {
            picture.show(props, progress.map_or(0, |(_, done)| done(props)));
            frames += 1;
            if frames == RECORDED_FRAME {
                picture.record(&name);
            }
        };
        let is_done = Cell::new(false);
        let doing = async {
            let done = doing.await?;
            is_done.set(true);
            anyhow::Ok(done)
        };
        let waiting = async {
            if self.scene.until(LIMIT, show, |props| reached(props) && is_done.get()).await {
                return Ok(());
            }
            bail!("{title}: not reached within {LIMIT:?}; {}", self.props().reasons().join("; "))
        };
        let (done, ()) = tokio::try_join!(doing, waiting)?;
        let seconds = start.elapsed().as_secs_f64();
        picture.done(&format!("{result} ({seconds:.1} s)"));
        self.acts.push(ActResult { title: title.to_owned(), seconds, result: result.to_owned() });
        Ok(done)
    }

    /// Waits between two acts.
    ///
    /// # Errors
    /// It takes too long. `what` completes "waited in vain for".
    pub async fn until(&self, what: &str, reached: impl Fn(&P) -> bool) -> Result<()> {
        if self.scene.until(LIMIT, |_| {}, reached).await {
            return Ok(());
        }
        bail!("timed out waiting for {what}")
    }

    /// Ends. The cloud created so many VMs, and so many are left.
    #[must_use]
    pub fn end(self, vms_created: u64, vms_alive: u64) -> DemoSummary {
        DemoSummary { acts: self.acts, seconds: self.start.elapsed().as_secs_f64(), vms_created, vms_alive }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        future::ready,
        sync::atomic::{AtomicU64, Ordering},
    };

    use anyhow::anyhow;
    use jiff::Timestamp;

    use super::*;

    /// Number of frames.
    #[derive(Clone, Default)]
    struct Looks(u64);

    impl DemoView for Looks {
        fn frame(&self, _now: Timestamp, _width: u16, _colours: bool) -> String {
            String::new()
        }

        fn states(&self) -> BTreeMap<String, String> {
            BTreeMap::new()
        }

        fn reasons(&self) -> Vec<String> {
            vec![format!("looked {} times", self.0)]
        }
    }

    fn looking() -> LiveObjects<Looks> {
        let looks = AtomicU64::new(0);
        LiveObjects::looking(move || {
            let count = looks.fetch_add(1, Ordering::Relaxed) + 1;
            // A failed look keeps the previous objects.
            ready(if count.is_multiple_of(2) { Err(anyhow!("blind")) } else { Ok(Looks(count)) })
        })
    }

    #[tokio::test(start_paused = true)]
    async fn an_act_ends_when_it_is_done_and_its_goal_is_reached() {
        let screen = DemoScreen::new(false, None);
        let mut show = DemoShow::new(&screen, looking());
        let answer = show.act("first", ready(Ok(7)), |looks| looks.0 >= 5, None, "five looks").await.unwrap();
        assert_eq!((answer, show.props().0), (7, 5));
        let slow = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(())
        };
        show.act("second", slow, |_| true, None, "ten seconds").await.unwrap();
        assert!(show.props().0 >= 20, "{}", show.props().0);
        let titles: Vec<String> = show.end(0, 0).acts.into_iter().map(|act| act.title).collect();
        assert_eq!(titles, ["first", "second"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_act_that_fails_or_waits_in_vain_says_why() {
        let screen = DemoScreen::new(false, None);
        let mut show = DemoShow::new(&screen, looking());
        let failed =
            show.act("failing", ready(Err::<(), _>(anyhow!("refused"))), |_| false, None, "").await.unwrap_err();
        assert_eq!(failed.to_string(), "refused");
        let vain = show.act("endless", ready(Ok(())), |_| false, None, "").await.unwrap_err().to_string();
        assert!(vain.starts_with("endless: not reached within 150s; looked "), "{vain}");
        assert!(show.end(0, 0).acts.is_empty());
    }
}
