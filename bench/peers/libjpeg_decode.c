/* The yardstick: libjpeg-turbo decodes every photo of a folder in full, to RGB, on some threads, and does nothing else.
 *
 *     libjpeg_decode FOLDER THREADS WARMUP_SECONDS SECONDS
 *
 * The files lie in memory; each thread has one buffer for a whole picture, which it uses again and again.
 * Prints one JSON line, as the other peers' scripts do.
 */
#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <jpeglib.h>

typedef struct {
  unsigned char* bytes;
  unsigned long size;
} Photo;

static Photo* photos;
static size_t count, room;
static atomic_size_t next_photo, decoded;
static atomic_int stopped;

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void* must(void* memory) {
  if (memory == NULL) {
    fputs("libjpeg_decode: out of memory\n", stderr);
    exit(1);
  }
  return memory;
}

static int take(const char* path, const struct stat* status, int kind, struct FTW* place) {
  (void)place;
  if (kind != FTW_F) return 0;
  FILE* file = fopen(path, "rb");
  if (count == room) photos = must(realloc(photos, (room = 2 * room + 64) * sizeof *photos));
  Photo* photo = &photos[count++];
  photo->size = (unsigned long)status->st_size;
  photo->bytes = must(malloc(photo->size));
  if (file == NULL || fread(photo->bytes, 1, photo->size, file) != photo->size) {
    fprintf(stderr, "libjpeg_decode: cannot read %s\n", path);
    exit(1);
  }
  fclose(file);
  return 0;
}

static void* run(void* unused) {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  unsigned char* picture = NULL;
  size_t capacity = 0;
  jpeg.err = jpeg_std_error(&errors); /* ends the program at an error */
  jpeg_create_decompress(&jpeg);
  while (!atomic_load(&stopped)) {
    const Photo* photo = &photos[atomic_fetch_add(&next_photo, 1) % count];
    jpeg_mem_src(&jpeg, photo->bytes, photo->size);
    jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg);
    const size_t stride = 3 * (size_t)jpeg.output_width;
    if (stride * jpeg.output_height > capacity) {
      capacity = stride * jpeg.output_height;
      picture = must(realloc(picture, capacity));
    }
    while (jpeg.output_scanline < jpeg.output_height) {
      JSAMPROW rows[8];
      int wanted = 0;
      for (; wanted < 8 && jpeg.output_scanline + wanted < jpeg.output_height; wanted++)
        rows[wanted] = picture + stride * (jpeg.output_scanline + wanted);
      jpeg_read_scanlines(&jpeg, rows, wanted);
    }
    jpeg_finish_decompress(&jpeg);
    atomic_fetch_add(&decoded, 1);
  }
  jpeg_destroy_decompress(&jpeg);
  free(picture);
  return unused;
}

static void sleep_s(double seconds) {
  const struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (time_t)seconds))};
  nanosleep(&time, NULL);
}

int main(int argc, char** argv) {
  if (argc != 5 || nftw(argv[1], take, 16, FTW_PHYS) != 0 || count == 0) {
    fputs("usage: libjpeg_decode FOLDER_OF_JPEGS THREADS WARMUP_SECONDS SECONDS\n", stderr);
    return 2;
  }
  const int threads = atoi(argv[2]);
  pthread_t* ids = must(calloc((size_t)threads, sizeof *ids));
  for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, run, NULL);
  sleep_s(atof(argv[3]));
  const double started_s = now_s(), cpu = (double)clock();
  const size_t before = atomic_load(&decoded);
  sleep_s(atof(argv[4]));
  const double took_s = now_s() - started_s;
  const size_t images = atomic_load(&decoded) - before;
  const double cpus = ((double)clock() - cpu) / CLOCKS_PER_SEC / took_s;
  atomic_store(&stopped, 1);
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
  printf(
      "{\"images_per_s\": %.3f, \"first_batch_s\": null, \"cpus\": %.3f, \"memory_mb\": null, "
      "\"versions\": {\"libjpeg-turbo\": \"%s\"}}\n",
      images / took_s, cpus, TEXT(LIBJPEG_TURBO_VERSION));
  return 0;
}
