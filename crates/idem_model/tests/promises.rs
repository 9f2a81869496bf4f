//! Every setting, every order of events, every promise.
//!
//! IDEM_MODEL=word takes only the settings whose name contains the word; IDEM_MODEL_SIZE=large goes a tick further.

use std::env;
use std::time::Instant;

use idem_model::Play;
use idem_model::setting::{Size, settings};
use idem_rules::transition::transition;
use stateright::{Checker, Model};

#[test]
fn promises_are_kept() {
    let wanted = env::var("IDEM_MODEL").unwrap_or_default();
    let large = env::var("IDEM_MODEL_SIZE").is_ok_and(|size| size == "large");
    let size = if large { Size::Large } else { Size::Small };
    let mut broken = Vec::new();
    for setting in settings(size).into_iter().filter(|setting| setting.name.contains(&wanted)) {
        let (name, begun) = (setting.name, Instant::now());
        let play = Play { setting, rules: transition };
        let properties = play.properties();
        let checker = play.checker().threads(2).spawn_bfs().join();
        println!(
            "model: {name}: {} unique states, {} steps, depth {}, {:.1} s",
            checker.unique_state_count(),
            checker.state_count(),
            checker.max_depth(),
            begun.elapsed().as_secs_f32(),
        );
        for property in properties {
            let story = checker.discovery(property.name);
            match story {
                Some(story) if property.expectation.discovery_is_failure() => {
                    let row = story.last_state().action.clone();
                    broken.push(format!(
                        "{name}: {}: {:?}\nends in {row:?}",
                        property.name,
                        story.into_actions()
                    ));
                }
                None if !property.expectation.discovery_is_failure() => {
                    broken.push(format!("{name}: no story comes to {}", property.name));
                }
                _ => {}
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
