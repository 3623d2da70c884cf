#include "tools/report/chrome_trace.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/report/perfetto.pb.h"

namespace gradloom {
namespace {

using Json = nlohmann::ordered_json;

class ChromeEvents {
 public:
  explicit ChromeEvents(const perfetto::Trace& trace) {
    for (const perfetto::TracePacket& packet : trace.packet()) {
      if (packet.has_track_descriptor()) Describe(packet.track_descriptor());
      if (packet.has_track_event()) Add(packet.track_event(), static_cast<double>(packet.timestamp()) * 1e-3);
    }
  }

  std::string Text() const {
    const Json whole{{"displayTimeUnit", "ns"}, {"traceEvents", events_}};
    // Names of a hostile file may not be UTF-8.
    return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  struct Track {
    int64_t process = 0, thread = 0;
    std::string name;
  };

  void Describe(const perfetto::TrackDescriptor& track) {
    if (track.has_process()) {
      tracks_[track.uuid()] = {track.process().pid(), 0, track.name()};
      Name("process_name", tracks_[track.uuid()]);
      return;
    }
    const int64_t process = tracks_[track.parent_uuid()].process;
    tracks_[track.uuid()] = {process, static_cast<int64_t>(track.uuid() - track.parent_uuid()), track.name()};
    if (!track.has_counter()) Name("thread_name", tracks_[track.uuid()]);
  }

  void Name(const char* what, const Track& track) {
    events_.push_back({{"name", what}, {"ph", "M"}, {"pid", track.process}, {"tid", track.thread}, {"args", Json{{"name", track.name}}}});
  }

  void Add(const perfetto::TrackEvent& event, double us) {
    const Track& track = tracks_[event.track_uuid()];
    if (event.type() == perfetto::TrackEvent::COUNTER) {
      events_.push_back({{"name", track.name},
                         {"ph", "C"},
                         {"ts", us},
                         {"pid", track.process},
                         {"tid", track.thread},
                         {"args", Json{{"bytes", event.counter_value()}}}});
    } else if (event.type() == perfetto::TrackEvent::SLICE_END) {
      // Slices of a stream do not nest, so the last one that began is the one that ends.
      Json& begun = events_[last_[event.track_uuid()]];
      begun["dur"] = us - begun["ts"].get<double>();
    } else {
      Begin(event, track, us);
    }
  }

  void Begin(const perfetto::TrackEvent& event, const Track& track, double us) {
    Json args = Json::object();
    for (const perfetto::DebugAnnotation& annotation : event.debug_annotations()) {
      args[annotation.name()] =
          annotation.value_case() == perfetto::DebugAnnotation::kIntValue ? Json(annotation.int_value()) : Json(annotation.string_value());
    }
    const std::string category = event.categories_size() > 0 ? event.categories(0) : "";
    last_[event.track_uuid()] = events_.size();
    events_.push_back({{"name", event.name()},
                       {"cat", category},
                       {"ph", "X"},
                       {"ts", us},
                       {"dur", 0.0},
                       {"pid", track.process},
                       {"tid", track.thread},
                       {"args", args}});
    const auto flow = [&](const char* phase, uint64_t id) {
      Json arrow{{"name", "order"}, {"cat", category},      {"ph", phase},        {"id", id},
                 {"ts", us},        {"pid", track.process}, {"tid", track.thread}};
      if (*phase == 'f') arrow["bp"] = "e";
      events_.push_back(std::move(arrow));
    };
    for (const uint64_t id : event.flow_ids()) flow(begun_.insert(id).second ? "s" : "t", id);
    for (const uint64_t id : event.terminating_flow_ids()) flow("f", id);
  }

  Json events_ = Json::array();
  std::map<uint64_t, Track> tracks_;
  std::map<uint64_t, size_t> last_;  // the last slice that began on a track
  std::set<uint64_t> begun_;         // flows
};

}  // namespace

std::string ChromeTraceOf(const perfetto::Trace& trace) { return ChromeEvents(trace).Text(); }

}  // namespace gradloom
