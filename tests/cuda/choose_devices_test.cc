// Resolves device specifications to devices, on recorded machines.
#include "runtime/device/choose_devices.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

CudaDevices Machine(int count) {
  CudaDevices machine;
  for (int i = 0; i < count; ++i) machine.devices.push_back({.ordinal = i, .name = "NVIDIA H200", .compute_major = 9});
  return machine;
}

CudaDevices NoGpu() { return {.devices = {}, .problem = "there is no NVIDIA driver", .visible = ""}; }

DeviceSpec Choose(const std::string& text, const CudaDevices& machine, std::string* note = nullptr) {
  return ChooseDevices(ParseDevices(text), machine, note);
}

std::string MessageOf(const std::string& text, const CudaDevices& machine) {
  try {
    Choose(text, machine);
  } catch (const Error& error) {
    return error.Describe();
  }
  return "";
}

TEST(ChooseDevices, NamesBecomeOrdinals) {
  const CudaDevices four = Machine(4);
  EXPECT_EQ(Choose("cuda", four).ToString(), "cuda:0");
  EXPECT_EQ(Choose("cuda:all", four).ToString(), "cuda:0,1,2,3");
  // A list with a gap keeps its order and its gap.
  EXPECT_EQ(Choose("cuda:0,2", four).ordinals, (std::vector<int>{0, 2}));
  EXPECT_EQ(Choose("cuda:3,cuda:1", four).ordinals, (std::vector<int>{3, 1}));
  // Two logical devices on one GPU.
  EXPECT_EQ(Choose("cuda:0,cuda:0", four).count, 2);
  EXPECT_EQ(Choose("cpu:3", four).ToString(), "cpu:3");
}

TEST(ChooseDevices, FindsOneDeviceByName) {
  const CudaDevices four = Machine(4);
  const auto of = [&](const std::string& text, const std::string& devices) { return ParseDeviceIndex(text, Choose(devices, four)); };
  EXPECT_EQ(of("cpu:1", "cuda:3,cuda:1"), 1);
  EXPECT_EQ(of("cuda:1", "cuda:3,cuda:1"), 1);
  EXPECT_EQ(of("cuda:3", "cuda:3,cuda:1"), 0);
  EXPECT_EQ(of("cuda:2", "cuda:all"), 2);
  EXPECT_EQ(of("cuda:2", "cuda:3,cuda:1"), -1);
  // The name is ambiguous.
  EXPECT_EQ(of("cuda:0", "cuda:0,0,1"), -1);
  EXPECT_EQ(of("cuda:1", "cuda:0,0,1"), 2);
  EXPECT_EQ(of("cuda:0", "cpu:2"), -1);
  for (const char* none : {"cuda", "cuda:", "cuda:x", "cuda:-1", "cpu", "cpu:-1", "cpu:1x", "1", ""}) EXPECT_EQ(of(none, "cuda:all"), -1);
}

TEST(ChooseDevices, AssignsOneDevicePerLocalProcess) {
  const auto of = [](const std::string& text, int local_rank, const CudaDevices& machine) {
    return DeviceOfLocalRank(ParseDevices(text), local_rank, machine).ToString();
  };
  EXPECT_EQ(of("cuda", 0, Machine(4)), "cuda:0");
  EXPECT_EQ(of("cuda", 3, Machine(4)), "cuda:3");
  EXPECT_EQ(of("auto", 1, Machine(2)), "cuda:1");
  // Launchers that show each process only its own GPU: CUDA_VISIBLE_DEVICES=3.
  EXPECT_EQ(of("cuda", 3, Machine(1)), ParseDevices("cuda").ToString());
  EXPECT_TRUE(DeviceOfLocalRank(ParseDevices("auto"), 1, NoGpu()).best);
  // An explicit device is taken literally.
  for (const char* named : {"cuda:0", "cuda:all", "cpu:2"}) EXPECT_EQ(of(named, 1, Machine(4)), ParseDevices(named).ToString());
  try {
    of("cuda", 2, Machine(2));
    ADD_FAILURE() << "a GPU that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDevice);
    EXPECT_EQ(error.message(), "there is no GPU for local rank 2: this machine has cuda:0, cuda:1");
  }
}

TEST(ChooseDevices, AutoUsesAvailableDevicesAndReportsThem) {
  std::string note;
  EXPECT_EQ(Choose("auto", Machine(2), &note).ToString(), "cuda:0");
  EXPECT_EQ(note, "");
  EXPECT_EQ(Choose("auto", NoGpu(), &note).ToString(), "cpu");
  EXPECT_EQ(note, "training on the CPU: there is no NVIDIA driver");
}

TEST(ChooseDevices, FallsBackToCpuOnRequest) {
  std::string note;
  EXPECT_EQ(Choose("cuda:1,else=cpu", Machine(2), &note).ToString(), "cuda:1");
  EXPECT_EQ(note, "");
  EXPECT_EQ(Choose("cuda:1,else=cpu", Machine(1), &note).ToString(), "cpu");
  EXPECT_EQ(note, "training on the CPU instead of cuda:1: this machine has cuda:0");
  EXPECT_EQ(Choose("cuda,else=cpu", NoGpu(), &note).ToString(), "cpu");
}

// CUDA_VISIBLE_DEVICES=2,3 on a machine with four GPUs: the process sees 0 and 1.
TEST(ChooseDevices, ReportsMissingAndAvailableDevices) {
  CudaDevices visible = Machine(2);
  visible.visible = "2,3";
  EXPECT_EQ(Choose("cuda:1", visible).ordinals, std::vector<int>{1});
  const std::string message = MessageOf("cuda:0,2", visible);
  EXPECT_NE(message.find("E-DEVICE"), std::string::npos);
  EXPECT_NE(message.find("there is no device cuda:2: this machine has cuda:0, cuda:1"), std::string::npos) << message;
  EXPECT_NE(message.find("CUDA_VISIBLE_DEVICES=2,3"), std::string::npos) << message;
  EXPECT_NE(MessageOf("cuda:0", NoGpu()).find("there is no NVIDIA driver"), std::string::npos);
}

TEST(ChooseDevices, RejectsMixedKinds) {
  for (const char* text : {"cuda:0,cpu:1", "cpu:1,cuda:0", "cuda:0,cpu"}) {
    const std::string message = MessageOf(text, Machine(1));
    EXPECT_NE(message.find("cuda and cpu cannot share a batch"), std::string::npos) << message;
    EXPECT_NE(message.find(text), std::string::npos);
  }
  for (const char* text : {"cuda:", "cuda:x", "cuda:-1", "cuda:0,,1", "cuda:1.5", "gpu", "cpu:0", "cuda:all,0"}) {
    EXPECT_NE(MessageOf(text, Machine(4)).find("E-CONFIG"), std::string::npos) << text;
  }
}

std::string FreeNote(const std::string& text, const CudaDevices& machine) {
  const DeviceSpec wanted = ParseDevices(text);
  return FreeDevicesNote(wanted, ChooseDevices(wanted, machine, nullptr), machine);
}

TEST(ChooseDevices, PointsOutUnusedDevicesToASingleProcess) {
  CudaDevices machine = Machine(4);
  for (DeviceProperties& device : machine.devices) {
    device.memory_total_bytes = int64_t{80} << 30;
    device.memory_free_bytes = int64_t{79} << 30;
  }
  const std::string three = "devices 3 more GPUs are free (cuda:1, cuda:2, cuda:3): --devices cuda:all trains on all";
  EXPECT_EQ(FreeNote("auto", machine), three);
  EXPECT_EQ(FreeNote("cuda", machine), three);
  machine.devices[1].busy_percent = 97;
  machine.devices[2].memory_free_bytes = int64_t{20} << 30;
  machine.devices[3].busy_percent = 2;
  EXPECT_EQ(FreeNote("cuda", machine), "devices 1 more GPU is free (cuda:3): --devices cuda:all trains on all");
  machine.devices[3].busy_percent = 60;
  EXPECT_EQ(FreeNote("cuda", machine), "");
  // No note if the user chose explicitly, or if there is no free device.
  for (const char* text : {"cuda:0", "cuda:all", "cuda:0,1", "cpu"}) EXPECT_EQ(FreeNote(text, Machine(4)), "") << text;
  EXPECT_EQ(FreeNote("auto", Machine(1)), "");
  EXPECT_EQ(FreeNote("auto", NoGpu()), "");
}

}  // namespace
}  // namespace gradloom
